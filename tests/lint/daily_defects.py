"""What breaks prefixes in agents' programs every day: two to four requests each, with one defect and the code it has."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clean_traffic import TOOLS, assistant, call, result, sent, system, user

Body = dict[str, Any]
RULES = (
    "You are a careful engineer. Read a file before you change it, run the tests after each change, and say plainly what you "
    "did and what you did not do. Generated code is never edited by hand; find its source and edit that instead. Answer in "
    "whole sentences, and name every file that you speak of. Ask before you delete anything."
)
CAFE = "The café's menu lists crème brûlée; spell such names as their owners do. "


@dataclass(frozen=True)
class Defect:
    """
    Attributes:
        code: what the only finding is called.
        severity: what it must be; ``None``: not looked at.
        path: where it is.
    """

    name: str
    code: str
    requests: Sequence[Body]
    path: str | None = None
    severity: str | None = None


def chats(head: Callable[[int], str], turns: int = 3) -> list[Body]:
    """One conversation whose system text is ``head(turn)``."""
    steps = [
        step
        for turn in range(turns)
        for step in (user(f"Step {turn} of the port, please."), assistant(f"Done {turn}."))
    ]
    bodies = sent(system(), *steps[:-1])
    return [{"messages": [system(head(turn)), *body["messages"][1:]]} for turn, body in enumerate(bodies)]


def runs(head: Callable[[int], str], count: int = 3) -> list[Body]:
    """The first requests of several runs, each with a task of its own."""
    tasks = ("Port the lexer.", "Why is the build red?", "List what is not tested.", "Write the changelog.")
    return [{"messages": [system(head(run)), user(tasks[run])]} for run in range(count)]


def at(place: str, slot: str) -> str:
    """``slot`` at the head, in the middle or at the end of the rules."""
    half = RULES.index("Generated")
    return {"head": f"{slot} {RULES}", "middle": f"{RULES[:half]}{slot} {RULES[half:]}", "end": f"{RULES} {slot}"}[
        place
    ]


CLOCKS = {
    "second": ("Now: 2026-11-29 10:30:05.", "Now: 2026-11-29 10:31:47.", "Now: 2026-11-29 10:33:12."),
    "minute": ("Now: 2026-11-29 10:30.", "Now: 2026-11-29 10:31.", "Now: 2026-11-29 10:33."),
    "day": ("Today is 2026-11-29.", "Today is 2026-11-30.", "Today is 2026-12-01."),
}
SYSTEM = "messages[0].content"


def clocks() -> list[Defect]:
    weight = {"second": "error", "minute": "error", "day": "warning"}

    def told(unit: str, place: str) -> list[Body]:
        return chats(lambda turn: at(place, CLOCKS[unit][turn]))

    return [
        Defect(f"clock to the {unit}, {place}", "AC101", told(unit, place), SYSTEM, weight[unit])
        for unit in CLOCKS
        for place in ("head", "middle", "end")
    ]  # fmt: skip


def slots() -> list[Defect]:
    uuids = (
        "7f0c2a54-1d3e-4b8f-9a55-0e6d1c2b3a49",
        "c81e728d-9d4c-4f63-af06-7f89cc14862c",
        "eccbc87e-4b5c-42fe-a832-6f04d1c7a1b0",
    )
    paths = ("/tmp/agent-k3x9q2/work", "/tmp/agent-p81zv0/work", "/tmp/agent-c07rr4/work")
    counters = ("[49% - 1,085/2,200 chars]", "[51% - 1,122/2,200 chars]", "[58% - 1,276/2,200 chars]")
    nonces = ("a3f1c", "9b2ce", "77d10")
    return [
        Defect("uuid of the run", "AC102", runs(lambda n: at("head", f"Session {uuids[n]}.")), SYSTEM),
        Defect("temporary path", "AC102", runs(lambda n: at("middle", f"Scratch files go to {paths[n]} only.")), SYSTEM),
        Defect("usage counter of a memory block", "AC103", chats(lambda n: at("head", f"MEMORY {counters[n]}")), SYSTEM),
        Defect("nonce of five hex digits", "AC103", runs(lambda n: at("head", f"[{nonces[n]}]")), SYSTEM),
    ]  # fmt: skip


def writing() -> list[Defect]:
    tools = SHAPED_TOOLS
    turned = [{**body, "tools": tools if n % 2 else tools[::-1]} for n, body in enumerate(runs(lambda n: RULES))]
    keys = [
        {**body, "tools": tools if n % 2 else [_turned(tools[0]), *tools[1:]]}
        for n, body in enumerate(runs(lambda n: RULES))
    ]
    floats = [
        {**body, "tools": [_limited(1 if n % 2 else 1.0), *tools]} for n, body in enumerate(runs(lambda n: RULES))
    ]
    forms = [unicodedata.normalize(form, CAFE + RULES) for form in ("NFC", "NFD")]
    return [
        Defect("tools in another order", "AC202", turned),
        Defect("keys of a schema in another order", "AC201", keys),
        Defect("1.0 where 1 was", "AC201", floats),
        Defect("trailing space", "AC204", runs(lambda n: RULES.replace("do. ", "do.  ") if n == 1 else RULES, 2), SYSTEM),
        Defect("CRLF", "AC204", runs(lambda n: RULES.replace(". ", ".\r\n" if n else ".\n"), 2), SYSTEM),
        Defect("NFD where NFC was", "AC205", runs(lambda n: forms[n], 2), SYSTEM),
    ]  # fmt: skip


def histories() -> list[Defect]:
    steps = [
        system(RULES), user("Name the parsers of this project, and say who wrote them."),
        assistant("There is one, and nobody has touched it in two years."),
        user("Which file is it in?"), assistant("It is in parser.py, beside the lexer."), user("Thanks."),
    ]  # fmt: skip
    whole = sent(*steps)
    edited = _copies(whole)
    for body in edited[2:]:
        body["messages"][1]["content"] = "Name the parsers of this project, and say who mends them."
    stamped = [
        {"messages": [*body["messages"][:-1], user(f"[2026-11-29 10:3{n}:05] {body['messages'][-1]['content']}")]}
        for n, body in enumerate(whole)
    ]
    thought = sent(
        system(RULES), user("Is 91 a prime?"), assistant("No.", call(1), reasoning="7 times 13 is 91, so it is none."),
        result(1), assistant("It is 7 times 13."), user("Thanks."), tools=TOOLS,
    )  # fmt: skip
    stripped = _copies(thought)
    del stripped[-1]["messages"][2]["reasoning_content"]
    children = [
        {"messages": [user(f"{task}\n\n{RULES}")]}
        for task in (
            "Review the names in the parser.",
            "Find loops in the lexer that are slow.",
            "Write what the docs lack.",
        )
    ]
    return [
        Defect("history edited in turn 1", "AC401", edited, "messages[1].content"),
        Defect("a turn's stamp is not replayed", "AC101", stamped),
        Defect("thinking text dropped from history", "AC405", stripped),
        Defect("child prompts with the varying part first", "AC105", children, SYSTEM),
    ]


def _copies(bodies: list[Body]) -> list[Body]:
    """The same requests, of which none shares a message with another."""
    return [json.loads(json.dumps(body)) for body in bodies]


def _tool(name: str, **properties: Any) -> Body:
    parameters = {"type": "object", "properties": properties, "required": sorted(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": f"{name} of the tree", "parameters": parameters},
    }


SHAPED_TOOLS = [
    _tool("read_file", path={"type": "string", "description": "from the root"}, limit={"type": "integer"}),
    _tool("list_files", path={"type": "string"}),
    _tool("run_tests", pattern={"type": "string"}),
]


def _limited(value: float) -> Body:
    return _tool("wait", seconds={"type": "number", "default": value})


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _turned(value[key]) for key in reversed(value)}
    return value


DEFECTS: tuple[Defect, ...] = (*clocks(), *slots(), *writing(), *histories())
