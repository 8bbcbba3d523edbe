"""What the twins of the rules about texts are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lint_workloads import INSTRUCTIONS

Body = dict[str, Any]

RULES = INSTRUCTIONS
"""Text that all requests share."""
MORE_RULES = (
    "Ask before you spend money or send mail. Prefer small steps that can be taken back. When two sources disagree, say so "
    "and name both. Answer in the language of the question, in whole sentences, and without a list where a sentence does. "
)
QUESTIONS = (
    "Why is the cart empty after a reload?",
    "Which tests cover the parser?",
    "How long may a name be?",
    "Who may cancel an order?",
)
SECONDS = ("2026-11-29 10:30:05", "2026-11-29 10:31:47", "2026-11-29 10:33:12", "2026-11-29 10:40:58")
UUIDS = (
    "8c1f2d3e-90ab-4c5d-8e7f-0123456789ab",
    "0f8fad5b-d9cb-469f-a165-70867728950e",
    "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "1b4e28ba-2fa1-41d2-883f-0016d3cca427",
)


def system(content: str) -> Body:
    return {"role": "system", "content": content}


def user(content: str) -> Body:
    return {"role": "user", "content": content}


def assistant(content: str) -> Body:
    return {"role": "assistant", "content": content}


def growing(
    head: Callable[[int], str] = lambda turn: RULES,
    *,
    turns: int = 3,
    said: Callable[[int, int], str] = lambda k, turn: QUESTIONS[k],
    replied: Callable[[int, int], str] = lambda k, turn: (
        f"I looked into it, and the answer to question {k} is in the pages."
    ),
    **fields: Any,
) -> list[Body]:
    """The requests of one conversation.

    Args:
        head: the system text that is sent with a turn.
        said, replied: message ``k`` of the user and the reply to it, as they are sent with a turn.
    """
    requests = []
    for turn in range(turns):
        messages = [system(head(turn))]
        for k in range(turn):
            messages += [user(said(k, turn)), assistant(replied(k, turn))]
        requests.append({"messages": [*messages, user(said(turn, turn))], **fields})
    return requests


def apart(heads: Sequence[str], questions: Sequence[str] = QUESTIONS, **fields: Any) -> list[Body]:
    """One request each of different sessions."""
    return [{"messages": [system(head), user(said)], **fields} for head, said in zip(heads, questions, strict=False)]


def tool(name: str = "translate", description: str = "Translates a text.", **schema: Any) -> Body:
    parameters = {"type": "object", "properties": {"text": {"type": "string"}, "to": {"type": "string"}}, **schema}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def with_tools(requests: list[Body], tools: Callable[[int], list[Body]]) -> list[Body]:
    """``tools(i)`` offered in request ``i``."""
    return [{**request, "tools": tools(index)} for index, request in enumerate(requests)]
