"""Calls that are plain JSON, without markers: what Llama models write, and the fallback for everything else.

::

    {"name": "read", "parameters": {"path": "a.py"}}; {"name": "list", "parameters": {}}
    <|python_tag|>{"name": "read", "parameters": {"path": "a.py"}}
    [{"name": "read", "arguments": {"path": "a.py"}}]

Nothing but the name tells a call from JSON that is the reply itself, so only JSON that names a tool of the request is one, and
only where a line begins, or right after another call.
"""

from __future__ import annotations

import re

from agentcache.chat.replies.calls import CallObject, Outcome
from agentcache.chat.replies.markers import MarkerFinder
from agentcache.chat.replies.output import MakeId, Output
from agentcache.chat.replies.stepping import SteppingParser

PYTHON_TAG = "<|python_tag|>"
_FENCE = "```"
_BETWEEN = " \t\r\n;,]}"
_OPENING = re.compile(r"(?:\[\s{0,16})?\{")
_FENCED_OPENING = re.compile(r"(?:```[a-z_]{0,12}[ \t]{0,4}\r?\n\s{0,16})?(?:\[\s{0,16})?\{")
_UNFINISHED_OPENING = re.compile(r"(?:`{1,2}|```[a-z_]{0,12}[ \t]{0,4}\r?(?:\n\s{0,16}(?:\[\s{0,16})?)?|\[\s{0,16})\Z")
"""White space in them is bounded: beyond that it is no call, and nothing more needs to be held back."""


class BareParser(SteppingParser):
    """Reads one reply.

    Args:
        known: the names that make JSON a call.
        fences: calls may stand in a fenced block (three backticks), which is then no content either.
    """

    def __init__(self, make_id: MakeId, known: frozenset[str], *, fences: bool = False) -> None:
        self._known = known
        super().__init__(make_id, self._new_call)
        self._lines = MarkerFinder(["\n", PYTHON_TAG])
        self._opening = _FENCED_OPENING if fences else _OPENING
        self._openers = "{[`" if fences else "{["
        self._before = ""
        """What stands before the bracket of the object that is being read: text, if it is no call."""
        self._fenced = False
        """Whether the fence of the last call is still open."""

    def _new_call(self, out: Output) -> CallObject:
        return CallObject(out, known=self._known)

    def _cut(self) -> None:
        if self._state == self._call:
            self._cut_object(self._before)
        else:
            self._out.content(self._held)

    def _first(self, text: str) -> str:
        """At the beginning of a line."""
        stripped = text.lstrip()
        if len(stripped) < len(text):
            self._out.content(text[: len(text) - len(stripped)])
        if stripped:
            self._state = self._bracket if stripped[0] in self._openers else self._text
        return stripped

    def _text(self, text: str) -> str:
        self._fenced = False
        marker, rest = self._up_to_marker(self._lines, text)
        if marker == PYTHON_TAG:
            self._out.edge()
        elif marker is not None:
            self._out.content(marker)
        if marker is not None:
            self._state = self._first
        return rest

    def _bracket(self, text: str) -> str:
        """What may stand before the bracket of a call: that of a list, a fence."""
        text = self._held + text
        self._held = ""
        opening = self._opening.match(text)
        if opening is not None:
            bracket = opening.end() - 1
            self._before, text = text[:bracket], text[bracket:]
            self._object = self._new_call(self._out)
            self._state = self._call
        elif _UNFINISHED_OPENING.match(text):
            self._held, text = text, ""
        else:
            self._state = self._text
        return text

    def _call(self, text: str) -> str:
        outcome, rest = self._read_object(text, self._before)
        if outcome is Outcome.TEXT:
            self._state = self._text
        elif outcome is not Outcome.MORE:
            self._fenced = self._fenced or self._before.startswith(_FENCE)
            self._state = self._after_call
        return rest

    def _after_call(self, text: str) -> str:
        """Another call may follow right here; what separates them is no content."""
        text = (self._held + text).lstrip(_BETWEEN)
        self._held = ""
        if self._fenced and text and _FENCE.startswith(text[:3]):
            if len(text) < len(_FENCE):
                self._held = text
                return ""
            self._fenced = False
            return text[len(_FENCE) :]
        if text:
            self._state = self._first
        return text
