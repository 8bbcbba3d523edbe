"""What the twins of the rules about structure are made of."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clean_traffic import TOOLS, Body, assistant, call, result, sent, system, tool, user
from lint_workloads import INSTRUCTIONS

PRINTS_ALL = ("--template", str(Path(__file__).parent / "twin_templates" / "prints_all.jinja"))
"""A template that prints ids of calls, reasoning, and three options."""

TASKS = ("Fix the parser.", "Now the lexer.", "Now the printer.", "Now the tests of all three.", "Now the pages.")
REPLIES = (
    "The parser split at blanks only. It splits at all white space now, and its tests pass.",
    "The lexer dropped the last token of a line that ended without a line end. It keeps it now.",
    "The printer wrote numbers in two forms. It writes them in one now, and there is a test for it.",
    "All tests pass, the three new ones among them. Nothing else was changed.",
)


def steps(turns: int = 4, *, tasks: Sequence[str] = TASKS) -> list[Body]:
    """A conversation: a system text, and ``turns`` questions with a reply between each two."""
    said = [system()]
    for turn in range(turns):
        said += [user(tasks[turn]), assistant(REPLIES[turn])] if turn < turns - 1 else [user(tasks[turn])]
    return said


def growing(turns: int = 4, **fields: Any) -> list[Body]:
    """Its requests."""
    return sent(*steps(turns), **fields)


def called(turns: int = 3, **fields: Any) -> list[Body]:
    """The requests of a conversation in which each reply calls a tool."""
    said: list[Any] = [system(), user("Why does the build fail?")]
    for turn in range(1, turns + 1):
        arguments = json.dumps({"path": f"parser{turn}.py", "limit": 10 * turn})
        said += [assistant("Let me look.", call(turn, arguments=arguments)), result(turn)]
    return sent(*said, **{"tools": TOOLS, **fields})


def from_request(requests: list[Body], first: int, change: Callable[[Body], None]) -> list[Body]:
    """Copies of ``requests``, with ``change`` made in those from number ``first`` (from 0) on."""
    copies = [copy.deepcopy(request) for request in requests]  # not as a whole: they share their tools
    for request in copies[first:]:
        change(request)
    return copies


def only_request(requests: list[Body], number: int, change: Callable[[Body], None]) -> list[Body]:
    """The same in one of them."""
    copies = [copy.deepcopy(request) for request in requests]  # not as a whole: they share their tools
    change(copies[number])
    return copies


__all__ = [
    "INSTRUCTIONS",
    "PRINTS_ALL",
    "REPLIES",
    "TASKS",
    "TOOLS",
    "Body",
    "assistant",
    "call",
    "called",
    "from_request",
    "growing",
    "only_request",
    "result",
    "sent",
    "steps",
    "system",
    "tool",
    "user",
]
