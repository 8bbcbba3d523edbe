"""Calls between markers, as Hermes and Qwen models write them::

<tool_call>
{"name": "read", "arguments": {"path": "a.py"}}
</tool_call>
"""

from __future__ import annotations

from collections.abc import Callable

from agentcache.chat.replies.calls import CallObject, Outcome
from agentcache.chat.replies.markers import MarkerFinder
from agentcache.chat.replies.output import MakeId, Output, slices
from agentcache.chat.replies.pieces import Piece

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesParser:
    """Reads one reply.  A call may lack its closing marker or its last brackets, and one pair of markers may hold several.

    Args:
        markers: the opening and the closing one.

    Every name makes a call.  What stands between markers and is no call comes out as content, without the markers.
    """

    def __init__(self, make_id: MakeId, markers: tuple[str, str] = (OPEN, CLOSE)) -> None:
        self._out = Output(make_id)
        self._open, self._close = markers
        self._markers = MarkerFinder(markers)
        self._state: Callable[[str], str] = self._text
        self._held = ""
        self._object = CallObject(self._out, closing=self._close)

    def push(self, text: str) -> list[Piece]:
        for part in slices(text):
            while part:
                part = self._state(part)
        return self._out.take()

    def flush(self) -> list[Piece]:
        if self._state == self._call:
            if self._object.flush() is Outcome.TEXT:
                self._out.content(self._object.raw)
        elif not (self._out.after_call and self._close.startswith(self._held)):
            self._out.content(self._held)
        self._held = ""
        return self._out.finish()

    def _text(self, text: str) -> str:
        text = self._held + text
        end, marker = self._markers.find(text)
        self._out.content(text[:end])
        if marker is None:
            self._held = text[end:]
            return ""
        self._held = ""
        self._out.edge()
        if marker == self._open:
            self._state = self._inside
        return text[end + len(marker) :]

    def _inside(self, text: str) -> str:
        """After the opening marker, or after a call: another call, or the end of the calls."""
        text = text.lstrip(_BETWEEN)
        if text:
            self._state = self._text
            if text[0] == "{":
                self._object = CallObject(self._out, closing=self._close)
                self._state = self._call
        return text

    def _call(self, text: str) -> str:
        outcome, rest = self._object.push(text)
        if outcome is Outcome.MORE:
            return ""
        if outcome is Outcome.TEXT:
            self._out.content(self._object.raw)
        self._state = self._inside
        return rest


_BETWEEN = " \t\r\n,[]}"
