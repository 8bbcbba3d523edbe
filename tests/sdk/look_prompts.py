"""Pairs of agent prompts: one defect each, and twins without it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
RULES = "You are a careful engineer who reads a file as a whole and says what is wrong with it. " * 12
QUESTION = "Read the parser and say which of its branches no test enters. " * 3
ANSWER = "The branch for a closing bracket without an opening one is entered by no test at all. " * 4


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str | None, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


def call(arguments: str = '{"path": "parser.py", "limit": 40}', call_id: str = "call_1") -> Message:
    function = {"name": "read_file", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def result(text: str = "def parse(text): ...\n" * 30, call_id: str = "call_1") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    properties = parameters or {"path": {"type": "string", "description": "relative to the repository"}}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": f"Does what {name} says, and nothing else.", "parameters": schema}
    return {"type": "function", "function": function}


TOOLS = [tool(name) for name in ("read_file", "write_file", "run_tests", "search")]


@dataclass(frozen=True)
class Pair:
    """Two requests; ``reply`` is what the first was answered with, and ``code`` what the second shows at ``path``."""

    name: str
    first: list[Message]
    second: list[Message]
    code: str | None = None
    path: str | None = None
    lost: tuple[int, int] = (0, 10_000)
    severity: str = "warning"
    reply: Message = field(default_factory=lambda: assistant(ANSWER))
    fields: tuple[dict[str, Any], dict[str, Any]] = ({}, {})


def headed(name: str, code: str | None, one: str, other: str, **more: Any) -> Pair:
    """Two conversations that begin with system texts of the same shape."""
    first, second = [system(one), user(QUESTION)], [system(other), user("And the tokenizer?")]
    return Pair(name, first, second, code, code and "messages[0].content", **more)


def grown(name: str, code: str | None, one: str, other: str, **more: Any) -> Pair:
    """One conversation whose system text is another one in the second turn."""
    first = [system(one), user(QUESTION)]
    second = [system(other), user(QUESTION), assistant(ANSWER), user("And the tokenizer?")]
    return Pair(name, first, second, code, code and "messages[0].content", **more)


HALF = len(RULES) // 2
MIDDLE = RULES[:HALF], RULES[HALF:]
BEHIND = (len(RULES) - 40) // 4, len(RULES) // 4 + 60
HALF_BEHIND = len(MIDDLE[1]) // 4 - 20, len(MIDDLE[1]) // 4 + 60
TURN = (len(QUESTION) + len(ANSWER)) // 4
TAIL = TURN - 10, TURN + 10


def _stamped() -> list[Pair]:
    pairs = []
    for grain, one, other, severity in (
        ("second", "It is 2026-01-05 10:31:07.", "It is 2026-01-05 10:31:42.", "warning"),
        ("millisecond", "Now: 2026-01-05T10:31:07.123Z", "Now: 2026-01-05T10:31:42.456Z", "warning"),
        ("minute", "Current time: 10:31.", "Current time: 10:32.", "warning"),
        ("day", "Today's date is 2026-01-05.", "Today's date is 2026-01-06.", "info"),
        ("named day", "Today is Monday, January 5, 2026.", "Today is Tuesday, January 6, 2026.", "info"),
        ("unix time", "Timestamp 1767609067.", "Timestamp 1767609102.", "warning"),
    ):
        more: dict[str, Any] = {"severity": severity}
        pairs += [
            headed(f"{grain} at the head", "AC101", f"{one} {RULES}", f"{other} {RULES}", lost=BEHIND, **more),
            headed(
                f"{grain} in the middle",
                "AC101",
                f" {one} ".join(MIDDLE),
                f" {other} ".join(MIDDLE),
                lost=HALF_BEHIND,
                **more,
            ),
            grown(f"{grain} at the end", "AC101", f"{RULES}\n{one}", f"{RULES}\n{other}", lost=TAIL, **more),
        ]
    return pairs


def _ids() -> list[Pair]:
    values = {
        "uuid": (
            "AC102",
            "Session 3f2b8c1e-9d4a-4c7b-8a52-0f6e1d2c3b4a",
            "Session 8a520f6e-1d2c-4c7b-9d4a-3f2b8c1e0a1b",
        ),
        "temporary folder": ("AC102", "Scratch: /tmp/tmpk3x9a_2b/out", "Scratch: /tmp/tmpq81mzz0c/out"),
        "hash": ("AC102", "Build 9fae31c0", "Build 17bd2ea4"),
        "usage counter": ("AC103", "You have used 7 of 50 calls.", "You have used 12 of 50 calls."),
        "git branch": ("AC104", "\nGit branch: main\n", "\nGit branch: fix/parser\n"),
        "working directory": ("AC104", "\nWorking directory: /home/a/one\n", "\nWorking directory: /home/b/two\n"),
    }
    return [
        headed(f"{name} {place}", code, text(one), text(other))
        for name, (code, one, other) in values.items()
        for place, text in _PLACES.items()
    ]


_PLACES: dict[str, Callable[[str], str]] = {
    "at the head": lambda value: f"{value} {RULES}",
    "in the middle": lambda value: f" {value} ".join(MIDDLE),
}


def _writing() -> list[Pair]:
    composed = RULES.replace("engineer", "ingénieur")
    decomposed = RULES.replace("engineer", "inge\u0301nieur")
    lines = RULES.replace(". ", ".\n")
    escaped = RULES.replace("engineer", "ing\\u00e9nieur")
    orders = 'Known files: "lexer.py", "parser.py", "tree.py".', 'Known files: "tree.py", "lexer.py", "parser.py".'
    return [
        headed("carriage returns", "AC204", lines, lines.replace("\n", "\r\n")),
        grown("a trailing space", "AC204", RULES.strip(), RULES, lost=TAIL),
        headed("a blank line more", "AC204", f"Rules:\n{RULES}", f"Rules:\n\n{RULES}"),
        headed("another Unicode form", "AC205", composed, decomposed),
        headed("other escapes", "AC206", composed, escaped),
        headed("another order of a set", "AC203", f"{orders[0]}\n{RULES}", f"{orders[1]}\n{RULES}"),
    ]


def _shared_text_behind() -> list[Pair]:
    tasks = [f"Task: {task}.\n\n{RULES}" for task in ("find untested branches of the parser", "time the tokenizer")]
    return [
        headed("a child prompt with its task first", "AC105", tasks[0], tasks[1], lost=BEHIND),
        Pair("a user's task first", [user(tasks[0])], [user(tasks[1])], "AC105", "messages[0].content", lost=BEHIND),
        headed(
            "a user's name first", "AC105", f"You work for Alice. {RULES}", f"You work for Bob. {RULES}", lost=BEHIND
        ),
    ]


def _tools() -> list[Pair]:
    first = [system(RULES), user(QUESTION)]
    other = [system(RULES), user("And the tokenizer?")]
    later = [*first, assistant(ANSWER), user("And the tokenizer?")]

    def pair(name: str, code: str, path: str, tools: list[Any], second: list[Message] = other, **more: Any) -> Pair:
        return Pair(name, first, second, code, path, fields=({"tools": TOOLS}, {"tools": tools}), **more)

    def changed(index: int, change: Callable[[dict[str, Any]], None]) -> list[Any]:
        tools = copy.deepcopy(TOOLS)
        change(tools[index]["function"])
        return tools

    def reordered(function: dict[str, Any]) -> None:
        parameters = function["parameters"]
        function["parameters"] = {key: parameters[key] for key in ("required", "properties", "type")}

    numbered = [[tool("count", n={"type": "number", "default": value}), *TOOLS] for value in (1, 1.0)]
    sets = [[tool("pick", kind={"type": "string", "enum": list(order)}), *TOOLS] for order in ("abc", "bca")]
    return [
        pair("tools in another order", "AC202", "tools[1]", [TOOLS[0], TOOLS[2], TOOLS[1], TOOLS[3]]),
        pair("keys of a schema in another order", "AC201", "tools[2].function.parameters", changed(2, reordered)),
        Pair(
            "1 and 1.0",
            first,
            other,
            "AC201",
            "tools[0].function.parameters.properties.n.default",
            fields=({"tools": numbered[0]}, {"tools": numbered[1]}),
        ),
        Pair(
            "choices out of a set",
            first,
            other,
            "AC203",
            "tools[0].function.parameters.properties.kind.enum",
            fields=({"tools": sets[0]}, {"tools": sets[1]}),
        ),
        pair(
            "another description",
            "AC302",
            "tools[1].function.description",
            changed(1, lambda f: f.update(description="Writes.")),
        ),
        pair(
            "white space in a description",
            "AC204",
            "tools[1].function.description",
            changed(1, lambda f: f.update(description=f["description"] + " ")),
        ),
        Pair(
            "a time in a description",
            first,
            other,
            "AC101",
            "tools[1].function.description",
            fields=(
                {"tools": changed(1, lambda f: f.update(description="Writes. Checked at 10:31:07."))},
                {"tools": changed(1, lambda f: f.update(description="Writes. Checked at 10:32:41."))},
            ),
        ),
        pair("a parameter more", "AC302", "tools[3].function.parameters.properties", changed(3, _with_parameter)),
        pair("a tool less in a later turn", "AC301", "tools", TOOLS[1:], later),
        pair("no tools in a later turn", "AC301", "tools", [], later),
        pair("a tool more in a later turn", "AC301", "tools", [*TOOLS, tool("delete_file")], later),
    ]


def _with_parameter(function: dict[str, Any]) -> None:
    function["parameters"]["properties"]["limit"] = {"type": "integer"}


CALLED = assistant(None, tool_calls=[call()])


def _history() -> list[Pair]:
    start = [system(RULES), user(QUESTION)]
    long = [*start, assistant(ANSWER), user("Thank you. " * 10)]
    after = [assistant("You are welcome."), user("And the tokenizer?")]
    tail = [*long[2:], *after]
    stamped = [system(RULES), user(f"{QUESTION}\n\nNow: 2026-01-05 10:31:07")]
    restamped = user(f"{QUESTION}\n\nNow: 2026-01-05 10:32:55")
    reply = assistant("You are welcome.")
    memory = system("Remember: the user prefers short answers.")
    return [
        Pair(
            "a message edited",
            long,
            [start[0], user(QUESTION + "Please."), *tail],
            "AC401",
            "messages[1].content",
            reply=reply,
        ),
        Pair("messages dropped", long, [start[0], *long[2:], *after], "AC402", "messages[1]", reply=reply),
        Pair("a message put in", long, [start[0], memory, *long[1:], *after], "AC404", "messages[1]", reply=reply),
        Pair(
            "a turn's stamp not replayed",
            stamped,
            [*start, assistant(ANSWER), user("More?")],
            "AC401",
            "messages[1].content",
        ),
        Pair(
            "a turn stamped anew",
            stamped,
            [start[0], restamped, assistant(ANSWER), user("More?")],
            "AC101",
            "messages[1].content",
        ),
        Pair(
            "another model",
            start,
            [*start, assistant(ANSWER), user("More?")],
            "AC601",
            "model",
            fields=({"model": "tiny"}, {"model": "big"}),
        ),
        Pair(
            "another salt",
            start,
            [*start, assistant(ANSWER), user("More?")],
            "AC602",
            "cache_salt",
            fields=({"cache_salt": "a"}, {"cache_salt": "b"}),
        ),
        Pair(
            "another template option",
            start,
            [*start, assistant(ANSWER), user("More?")],
            "AC604",
            "chat_template_kwargs",
            fields=(
                {"chat_template_kwargs": {"enable_thinking": True}},
                {"chat_template_kwargs": {"enable_thinking": False}},
            ),
        ),
    ]


def _clean() -> list[Pair]:
    start = [system(RULES), user(QUESTION)]
    grow = [*start, assistant(ANSWER), user("And the tokenizer?")]
    calls = [call(call_id="call_1"), call('{"path": "lexer.py"}', "call_2")]
    called = assistant(None, tool_calls=calls)
    results = [result(), result("nothing here\n" * 20, "call_2")]
    numbers = [f"Invoice {n}: {n * 3} EUR on 2026-01-{n:02}. {QUESTION}" for n in (7, 12)]
    return [
        Pair("a growing chat", start, grow),
        Pair("the same request again", start, start),
        Pair("a fork", grow, [*start, assistant(ANSWER), user("Or rather the lexer, if you would. " * 4)]),
        Pair("another question", start, [start[0], user("Why is the lexer slow? " * 5)]),
        Pair("another agent", start, [system("You write release notes. " * 20), user(QUESTION)]),
        Pair("a rollback", grow, start),
        Pair("parallel calls", start, [*start, called, *results], reply=called),
        Pair(
            "content as parts",
            start,
            [system(RULES), {"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
        ),
        Pair(
            "a reply with more fields",
            start,
            [*start, assistant(ANSWER, refusal="", id="msg_1", tool_calls=None), user("More?")],
        ),
        headed("a date that is talked about", None, f"{RULES} Released 2026-01-05.", f"{RULES} Released 2026-01-05."),
        headed("a word changed", None, f"You are a helpful reviewer. {RULES}", f"You are a thorough reviewer. {RULES}"),
        headed("a sentence more", None, RULES, f"Be brief. {RULES}"),
        headed("a rule more at the end", None, RULES, f"{RULES} Never guess."),
        Pair("data in questions", [start[0], user(numbers[0])], [start[0], user(numbers[1])]),
        Pair(
            "other tools for another agent",
            start,
            [system(RULES), user("More?")],
            fields=({"tools": TOOLS}, {"tools": [tool("mail"), tool("call")]}),
        ),
        Pair("the same tools", start, grow, fields=({"tools": TOOLS}, {"tools": copy.deepcopy(TOOLS)})),
        Pair(
            "another reply under other tools",
            start,
            [*start, assistant("I would rather begin with the lexer. " * 9), user("More?")],
            fields=({}, {"tools": TOOLS}),
        ),
        Pair("the same question to two models", start, start, fields=({"model": "tiny"}, {"model": "big"})),
        Pair("sampling", start, grow, fields=({"temperature": 0.5}, {"temperature": 0.9, "seed": 4})),
        Pair(
            "a summary in the place of much",
            [*grow, assistant(ANSWER), user("Go on. " * 40)],
            [start[0], user("So far: all is well."), user("Go on. " * 40)],
        ),
        Pair(
            "stamps at the end",
            [start[0], user(f"{QUESTION}\nNow: 10:31:07")],
            [start[0], user(f"{QUESTION}\nNow: 10:31:07"), assistant(ANSWER), user("More?\nNow: 10:32:00")],
        ),
    ]


DEFECTS = [*_stamped(), *_ids(), *_writing(), *_shared_text_behind(), *_tools(), *_history()]
CLEAN = _clean()
