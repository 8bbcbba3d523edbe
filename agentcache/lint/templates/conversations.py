"""The conversations that every template is tried with: the shapes that agents send.

Each is a whole history.  Its *turns* are the places where a program would ask for a reply::

    system  user  call  result  answer  user
                 ^asks        ^asks          ^asks
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentcache.chat.messages import Message

REASONING_KEYS = ("reasoning_content", "reasoning")
"""The names under which programs replay what a model thought; templates know the one or the other."""

INLINE = "content, between <think> and </think>"


@dataclass(frozen=True)
class Conversation:
    """One history.

    Attributes:
        title: what is special about it, in the table's words.
        reasons: replies carry what the model thought.
        carrier: under which name.
    """

    title: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    reasons: bool = False
    carrier: str = "reasoning_content"

    def turns(self) -> list[int]:
        """How many messages each request has: those before a reply, and at last all."""
        replies = [index for index, message in enumerate(self.messages) if message["role"] == "assistant"]
        return [*replies, len(self.messages)]

    def words(self, count: int) -> Iterator[str]:
        """What is said in the first ``count`` messages, so that it can be looked for in a prompt."""
        for message in self.messages[:count]:
            for key in ("content", *REASONING_KEYS):
                if message.get(key):
                    yield message[key]
            for call in message.get("tool_calls", ()):
                yield from call["function"]["arguments"].values()

    def without_system(self) -> Conversation:
        """The same for templates that take no system text."""
        said = tuple(message for message in self.messages if message["role"] != "system")
        return replace(self, title=f"{self.title} (no system text)", messages=said)

    def with_reasoning_as(self, key: str | None) -> Conversation:
        """The same with its reasoning under ``key``; ``None``: written into the content, between ``<think>`` marks."""
        return replace(self, messages=tuple(_carried(message, key) for message in self.messages), carrier=key or INLINE)


def _carried(message: Message, key: str | None) -> Message:
    if "reasoning_content" not in message:
        return message
    plain = {name: value for name, value in message.items() if name != "reasoning_content"}
    if key is not None:
        return {**plain, key: message["reasoning_content"]}
    return {**plain, "content": f"<think>\n{message['reasoning_content']}\n</think>\n\n{message['content']}"}


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _called(*paths: str, number: int) -> Message:
    """A reply that reads files; call ids are nine letters and digits, since some templates refuse others."""
    calls = [
        {"id": _id(number + i), "type": "function", "function": {"name": "read_file", "arguments": {"path": path}}}
        for i, path in enumerate(paths)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _result(number: int, content: str) -> Message:
    return {"role": "tool", "tool_call_id": _id(number), "name": "read_file", "content": content}


def _id(number: int) -> str:
    return f"call{number:05d}"


def _thinking(message: Message, thought: str) -> Message:
    return {**message, "reasoning_content": thought}


def _tool(name: str, description: str, argument: str) -> dict[str, Any]:
    properties = {argument: {"type": "string", "description": f"The {argument} to use, relative to the project."}}
    parameters: Mapping[str, Any] = {"type": "object", "properties": properties, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_SYSTEM = _said("system", "You are a careful engineer who reads a file before changing it, and says what was not done.")
_ASKS = (
    _said("user", "The settings loader drops the last line of every file. Where does that happen?"),
    _said("user", "Good. Does the loader for profiles have the same fault, and who calls it?"),
    _said("user", "Then mend both places and tell me which tests cover them."),
)
_ANSWERS = (
    _said(
        "assistant", "It happens in settings.py: the loop stops one line early when the file ends without a newline."
    ),
    _said("assistant", "Yes, profiles.py repeats that loop. Only the start-up code in main.py calls it."),
)
_RESULTS = (
    "for line in text.split(NEWLINE)[:-1]: keep(line)",
    "def load_profile(name): return parse(read(name))",
    "from profiles import load_profile as start_profile",
)
_THOUGHTS = (
    "The user wants the place of the fault, so the loader comes first.",
    "The slice cuts the last piece, which is empty only after a final newline.",
    "The same loop may have been copied; profiles is the candidate.",
    "Both loaders share the slice; who calls them has to be read in main.",
    "The import settles it, so the answer can name the start-up code.",
)
_TOOLS = (
    _tool("read_file", "Read a text file of the project.", "path"),
    _tool("run_tests", "Run the tests below a folder.", "folder"),
)


def _chat(first: Sequence[Message]) -> tuple[Message, ...]:
    return (*first, _ASKS[0], _ANSWERS[0], _ASKS[1], _ANSWERS[1], _ASKS[2])


def _rounds(*, thinking: bool) -> tuple[Message, ...]:
    """Two questions; the first takes two rounds of tools, the second takes one."""
    think = _thinking if thinking else _as_it_is
    return (
        _SYSTEM,
        _ASKS[0],
        think(_called("src/settings.py", number=1), _THOUGHTS[0]),
        _result(1, _RESULTS[0]),
        think(_called("src/reader.py", number=2), _THOUGHTS[1]),
        _result(2, _RESULTS[1]),
        think(_ANSWERS[0], _THOUGHTS[2]),
        _ASKS[1],
        think(_called("src/main.py", number=3), _THOUGHTS[3]),
        _result(3, _RESULTS[2]),
        think(_ANSWERS[1], _THOUGHTS[4]),
        _ASKS[2],
    )


def _as_it_is(message: Message, thought: str) -> Message:
    return message


PLAIN = Conversation("plain chat", _chat([]))
SYSTEM = Conversation("system text", _chat([_SYSTEM]))
LATE_SYSTEM = Conversation(
    "system text in mid-conversation",
    (_SYSTEM, _ASKS[0], _ANSWERS[0], _said("system", "From here on, answer in one sentence."), _ASKS[1]),
)
TOOLS = Conversation("tools", _chat([_SYSTEM]), _TOOLS)
CALLS = Conversation(
    "tool calls",
    (_SYSTEM, _ASKS[0], _called("src/settings.py", number=1), _result(1, _RESULTS[0]), _ANSWERS[0], _ASKS[1]),
    _TOOLS,
)
SPOKEN_CALLS = Conversation(
    "tool calls with text",
    (
        _SYSTEM,
        _ASKS[0],
        {**_called("src/settings.py", number=1), "content": "I will look at the loader first."},
        _result(1, _RESULTS[0]),
        _ANSWERS[0],
        _ASKS[1],
    ),
    _TOOLS,
)
PARALLEL = Conversation(
    "parallel calls",
    (
        _SYSTEM,
        _ASKS[0],
        _called("src/settings.py", "src/profiles.py", number=1),
        _result(1, _RESULTS[0]),
        _result(2, _RESULTS[1]),
        _ANSWERS[0],
        _ASKS[1],
    ),
    _TOOLS,
)
ROUNDS = Conversation("several tool rounds", _rounds(thinking=False), _TOOLS)
THOUGHTS = Conversation(
    "reasoning replayed, no tools",
    (
        _SYSTEM,
        _ASKS[0],
        _thinking(_ANSWERS[0], _THOUGHTS[0]),
        _ASKS[1],
        _thinking(_ANSWERS[1], _THOUGHTS[1]),
        _ASKS[2],
    ),
    reasons=True,
)
THOUGHT_ROUNDS = Conversation("reasoning replayed, with tools", _rounds(thinking=True), _TOOLS, reasons=True)

UNREASONED = (PLAIN, SYSTEM, LATE_SYSTEM, TOOLS, CALLS, SPOKEN_CALLS, PARALLEL, ROUNDS)
REASONED = (THOUGHTS, THOUGHT_ROUNDS)
