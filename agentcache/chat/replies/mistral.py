"""Calls behind a control token, as Mistral's models write them, in either of two ways::

[TOOL_CALLS][{"name": "read", "arguments": {"path": "a.py"}}, …]
[TOOL_CALLS]read[ARGS]{"path": "a.py"}[TOOL_CALLS]read[CALL_ID]fJ2kPq93b[ARGS]{"path": "b.py"}
"""

from __future__ import annotations

import re

from agentcache.chat.replies.calls import ArgumentsText, CallObject, Outcome
from agentcache.chat.replies.markers import MarkerFinder
from agentcache.chat.replies.output import MakeId, Output
from agentcache.chat.replies.stepping import SteppingParser
from agentcache.chat.replies.values import Scan, ValueScanner, starts

CALLS, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_NAME = re.compile(r"[^\s{}\[\]\"]+")
_NAME_AND_SPACE = re.compile(rf"{_NAME.pattern}\s*")
_ID = re.compile(r"[a-zA-Z0-9]{9}")
LONGEST_NAME = 256


def is_bare_name(name: str) -> bool:
    """Whether a call by ``name`` can be read where no quotes tell where the name ends."""
    return len(name) <= LONGEST_NAME and _NAME.fullmatch(name) is not None


class MistralParser(SteppingParser):
    """Reads one reply.  An id that the model writes is the call's id if it has the right shape.

    A marker that no call follows is left out; what does follow it is content.
    """

    def __init__(self, make_id: MakeId) -> None:
        super().__init__(make_id, _new_call)
        self._markers = MarkerFinder([CALLS])
        self._ends = MarkerFinder([ARGS, CALL_ID, CALLS, "{", "\n"])
        self._after_id = MarkerFinder([ARGS, CALLS, "{", "\n"])
        self._name = ""
        self._scanner = ValueScanner(CALLS)
        self._arguments = ArgumentsText(lambda text: None)

    def _cut(self) -> None:
        if self._state == self._in_list:
            self._cut_object()
        elif self._state == self._value:
            self._arguments.push(self._held)
            self._arguments.end(complete=False)
        elif self._state == self._id:
            self._out.content(self._name + self._held)
        else:
            self._out.content(self._held)

    def _first(self, text: str) -> str:
        """Text, up to the marker."""
        marker, rest = self._up_to_marker(self._markers, text)
        if marker is not None:
            self._out.edge()
            self._state = self._after_marker
        return rest

    def _after_marker(self, text: str) -> str:
        """Either a list of calls, or the name of one."""
        text = text.lstrip()
        if text:
            self._state = self._next_in_list if text[0] in "[{" else self._called
        return text

    # -- a list of calls

    def _next_in_list(self, text: str) -> str:
        """Another call, or the end of the list."""
        text = (self._held + text).lstrip(_BETWEEN)
        self._held = ""
        if not text:
            return ""
        marker = starts(text, 0, CALLS)
        if marker is None:
            self._held = text
            return ""
        if not marker and text[0] == "[":
            return text[1:]
        self._state = self._first
        if text[0] == "{":
            self._object = _new_call(self._out)
            self._state = self._in_list
        return text

    def _in_list(self, text: str) -> str:
        outcome, rest = self._read_object(text)
        if outcome is not Outcome.MORE:
            self._state = self._next_in_list
        return rest

    # -- a call by its name

    def _called(self, text: str) -> str:
        text = self._held + text
        self._held = ""
        end, marker = self._ends.find(text)
        if end > LONGEST_NAME or marker == "\n" or (marker and not _NAME_AND_SPACE.fullmatch(text, 0, end)):
            self._out.content(text[:end])
            self._state = self._first
            return text[end:]
        if marker is None:
            self._held = text
            return ""
        self._name = text[:end].rstrip()
        if marker == CALL_ID:
            self._state = self._id
            return text[end + len(marker) :]
        return self._begin(text[end:], None)

    def _id(self, text: str) -> str:
        text = self._held + text
        self._held = ""
        end, marker = self._after_id.find(text)
        if marker is None and end <= LONGEST_NAME:
            self._held = text
            return ""
        given = text[:end].strip()
        return self._begin(text[end:], given if _ID.fullmatch(given) else None)

    def _begin(self, text: str, call_id: str | None) -> str:
        index = self._out.call(self._name, call_id)
        self._arguments = ArgumentsText(lambda part: self._out.arguments(index, part))
        self._scanner = ValueScanner(CALLS)
        self._state = self._before_value
        return text[len(ARGS) :] if text.startswith(ARGS) else text

    def _before_value(self, text: str) -> str:
        text = text.lstrip()
        if text:
            self._state = self._value
        return text

    def _value(self, text: str) -> str:
        text = self._held + text
        end, status = self._scanner.scan(text, 0)
        self._arguments.push(text[:end])
        self._held = text[end:] if status is Scan.MORE else ""
        if status is Scan.MORE:
            return ""
        self._arguments.end(complete=True)
        self._state = self._first
        return text[end:]


def _new_call(out: Output) -> CallObject:
    return CallObject(out, closing=CALLS)


_BETWEEN = " \t\r\n,]}"
