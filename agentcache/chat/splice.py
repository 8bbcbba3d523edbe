"""Renders a conversation around replies whose text is known better than its template knows it.

A model's reply is kept as it was drawn: its JSON with the model's own white space, its reasoning, its control tokens.  A
template that is given the reply back as a message writes it in its own way, or leaves parts of it out.  So the template gets a
plain message in place of each known reply, with a character for content that occurs nowhere else, and only what it writes
around those is used::

    messages   system  user  REPLY  tool  REPLY  user
    rendered   [ piece 0 ..... ]X[ piece 1 ]X[ piece 2, generation prompt ]

Some templates want to see that a tool was called before they take its result.  They get the calls with the character in
their arguments, and the piece behind begins where a message ends::

    rendered   ... [INST]hi[/INST][TOOL_CALLS]read[CALL_ID]abc[ARGS]{"x": "X"}</s>[TOOL_RESULTS] ...
               [ piece 0 ....................................................]  [ piece 1 ...
               [ the reply begins somewhere in here ]
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcache.chat.guard import GuardedText
from agentcache.chat.messages import Message
from agentcache.chat.text import common_length
from agentcache.errors import ChatTemplateError

_MARKS = range(0xF8FF, 0xE000, -1)
"""Private-use characters; the guard begins at the other end."""
_KEY = "x"
_MAX_OPENINGS = 64

Render = Callable[[Sequence[Message], "list[dict[str, Any]] | None", bool, Mapping[str, Any]], str]
"""Text of (messages, tools, add_generation_prompt, template variables)."""


@dataclass(frozen=True)
class ChatInput:
    """What a chat template renders: one request's conversation.

    Attributes:
        root: its namespace, whose texts are tokenised once; without one nothing is remembered.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    template_kwargs: Mapping[str, Any] | None = None
    add_generation_prompt: bool = True
    root: bytes = b""


@dataclass(frozen=True)
class TextAround:
    """What a template writes around replies.

    Attributes:
        pieces: before each reply, and behind the last one.
        aliased: the last piece with aliases for its control tokens; ``None`` when nobody typed any.
    """

    pieces: tuple[str, ...]
    aliased: str | None = None


class Mold(enum.Enum):
    """What stands in place of a reply that called tools."""

    PLAIN = "a message with content only"
    CALLS = "a message with the same calls and other arguments"
    NONE = "nothing that the template takes"


def molded(message: Message, mold: Mold, mark: str, call_ids: Sequence[str] = ()) -> Message:
    """What stands in place of ``message``; ``mark`` is in it once."""
    calls = message.get("tool_calls")
    if not calls or mold is Mold.PLAIN:
        return {"role": "assistant", "content": mark}
    ids = {index: {"id": call_id} for index, call_id in enumerate(call_ids)}
    stand_ins = [
        {**call, **ids.get(index, {}), "function": {"name": call["function"]["name"], "arguments": {}}}
        for index, call in enumerate(calls)
    ]
    stand_ins[-1]["function"]["arguments"] = {_KEY: mark}
    return {"role": "assistant", "content": "", "tool_calls": stand_ins}


def with_told_ids(
    messages: Sequence[Message], told: Mapping[int, Sequence[str]]
) -> list[Message]:  # fmt: skip
    """Results under the ids that their calls had when they were made; clients may give calls other ones.

    Args:
        told: ids of the calls of known replies, by the index of their message.
    """
    renamed: dict[str, str] = {}
    fitted: list[Message] = []
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            ids = told.get(index, ())
            for place, call in enumerate(message.get("tool_calls", ())):
                if isinstance(call.get("id"), str):
                    renamed[call["id"]] = ids[place] if place < len(ids) else call["id"]
        answered = message.get("tool_call_id")
        if answered is not None and renamed.get(answered, answered) != answered:
            message = {**message, "tool_call_id": renamed[answered]}
        fitted.append(message)
    return fitted


def free_mark(*values: Any) -> str | None:
    """A private-use character that is in no string of ``values``."""
    return next((chr(code) for code in _MARKS if not any(_holds(value, chr(code)) for value in values)), None)


def _holds(value: Any, mark: str) -> bool:
    if isinstance(value, str):
        return mark in value
    if isinstance(value, Mapping):
        return any(_holds(key, mark) or _holds(item, mark) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return any(_holds(item, mark) for item in value)
    return False


def cut_at_marks(guarded: GuardedText, mark: str, ends: Sequence[str], aliased_end: str | None) -> TextAround | None:
    """The pieces between marks; ``None`` unless there is one mark for each of ``ends``.

    Args:
        ends: for each reply, what a message ends with, where its piece behind begins with that; else the empty string.
        aliased_end: the last of them with aliases.
    """
    pieces = guarded.text.split(mark)
    if len(pieces) != len(ends) + 1:
        return None
    for index, end in enumerate(ends):
        place = pieces[index + 1].find(end)
        if place < 0:
            return None
        pieces[index + 1] = pieces[index + 1][place:]
    if guarded.aliased is None:
        return TextAround(tuple(pieces))
    last = guarded.aliased.rpartition(mark)[2]
    place = last.find(ends[-1] if aliased_end is None else aliased_end)
    return None if place < 0 else TextAround(tuple(pieces), last[place:])


@dataclass
class TemplateMolds:
    """What one template takes in place of replies, found out with small conversations.  Safe to share between threads.

    Args:
        render: renders messages that were fitted to the template's shapes.
    """

    render: Render
    _kinds: dict[bool, Mold] = field(default_factory=dict)
    _openings: dict[str, str] = field(default_factory=dict)
    _turn_end: str | None = None

    def kind(self, *, with_tools: bool) -> Mold:
        """What stands in place of a reply with calls."""
        if with_tools not in self._kinds:
            # Twice each: a template that reads the clock may be met while it ticks.
            tried = (Mold.PLAIN, Mold.PLAIN, Mold.CALLS, Mold.CALLS)
            kinds = (kind for kind in tried if self._serves(kind, with_tools))
            self._kinds[with_tools] = next(kinds, Mold.NONE)
        return self._kinds[with_tools]

    def opening(self, kwargs: Mapping[str, Any], *, after_result: bool = False) -> str:
        """The generation prompt that follows a user's message, or a tool's result; empty where it cannot be told."""
        key = json.dumps([kwargs, after_result], sort_keys=True, default=str)
        found = self._openings.get(key)
        if found is None:
            if len(self._openings) >= _MAX_OPENINGS:
                self._openings.clear()
            found = self._opening(kwargs, _ONE) if after_result else ""
            found = self._openings[key] = found or self._opening(kwargs, [_USER])
        return found

    def turn_end(self) -> str:
        """What the template writes behind a message that a model wrote; empty where it cannot be told."""
        if self._turn_end is None:
            text = self._try([_USER, {"role": "assistant", "content": _MARK}], None, False)
            _, mark, end = (text or "").rpartition(_MARK)
            self._turn_end = end if mark and end.strip() else ""
        return self._turn_end

    def _opening(self, kwargs: Mapping[str, Any], asked: list[Message]) -> str:
        try:
            without, opened = (self.render(asked, None, add, kwargs) for add in (False, True))
            if opened != without:
                return opened[len(without) :] if opened.startswith(without) else ""
            # It asks for a reply whether it is told to or not: a history tells what belongs to the question alone.
            history = self.render([*asked, {"role": "assistant", "content": _MARK}], None, False, kwargs)
        except ChatTemplateError:
            return ""
        opening = opened[common_length(history.partition(_MARK)[0], opened) :]
        return "" if asked[-1]["content"] in opening else opening

    def _try(self, messages: Sequence[Message], tools: list[dict[str, Any]] | None, add: bool) -> str | None:
        try:
            return self.render(messages, tools, add, {})
        except ChatTemplateError:
            return None

    def _serves(self, kind: Mold, with_tools: bool) -> bool:
        """Whether the template writes the same around stand-ins as around calls, wherever it takes calls at all."""
        tools = [_TOOL] if with_tools else None
        end = self.turn_end() if kind is Mold.CALLS else ""
        if kind is Mold.CALLS and not end:
            return False
        seen = 0
        for messages in _CONVERSATIONS:
            real = self._try(messages, tools, True)
            if real is None:
                continue
            stand_ins = [molded(m, kind, _MARK) if m.get("tool_calls") else m for m in messages]
            text = self._try(stand_ins, tools, True)
            count = sum(1 for m in messages if m.get("tool_calls"))
            around = None if text is None else cut_at_marks(GuardedText(text), _MARK, [end] * count, None)
            if around is None or not self._surrounds(around, real, messages, tools, kind):
                return False
            seen += 1
        return seen > 0

    def _surrounds(
        self, around: TextAround, real: str, messages: Sequence[Message], tools: list[dict[str, Any]] | None, kind: Mold
    ) -> bool:  # fmt: skip
        """Whether ``real`` is the pieces with something between them; how a turn begins in a history does not matter."""
        if "".join(around.pieces).count(_ANSWER) != real.count(_ANSWER):
            return False  # results hide behind stand-ins, or a message with calls ends in another way than others
        first = self._try(messages[:1], tools, False) or ""
        if not (real.startswith(first) and around.pieces[0].startswith(first)):
            return False
        if not real.endswith(around.pieces[-1]) or kind is Mold.CALLS:
            return real.endswith(around.pieces[-1])
        header, place = around.pieces[0][len(first) :], len(first)
        for piece in around.pieces[1:-1]:
            body = piece.removesuffix(header)
            found = real.find(body, place)
            if found < 0:
                return False
            place = found + len(body)
        return place <= len(real) - len(around.pieces[-1])


_MARK = "\uf8ff"
_USER: Message = {"role": "user", "content": "hello"}
_SAID: Message = {"role": "assistant", "content": "zqsaid"}
_ANSWER = "zqresult"
_IDS = ("zq1234567", "zq7654321")  # nine letters and digits: some templates refuse anything else
_PARAMETERS = {"type": "object", "properties": {"path": {"type": "string", "description": "zq"}}, "required": ["path"]}
_TOOL = {"type": "function", "function": {"name": "zqread", "description": "zq", "parameters": _PARAMETERS}}


def _called(*ids: str) -> Message:
    function = {"name": "zqread", "arguments": {"path": "zqvalue"}}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": call_id, "type": "function", "function": function} for call_id in ids],
    }


def _result(call_id: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "name": "zqread", "content": _ANSWER}


_ONE: list[Message] = [_USER, _called(_IDS[0]), _result(_IDS[0])]
_CONVERSATIONS: tuple[list[Message], ...] = (
    _ONE,
    [*_ONE, _called(_IDS[1]), _result(_IDS[1])],
    [*_ONE, _SAID, _USER],
    [*_ONE, _SAID, _USER, _called(_IDS[1]), _result(_IDS[1])],
    [_USER, _called(*_IDS), _result(_IDS[0]), _result(_IDS[1])],
)
