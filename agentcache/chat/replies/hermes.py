"""Calls between markers, as Hermes and Qwen models write them::

<tool_call>
{"name": "read", "arguments": {"path": "a.py"}}
</tool_call>
"""

from __future__ import annotations

from agentcache.chat.replies.calls import CallObject, Outcome
from agentcache.chat.replies.markers import MarkerFinder
from agentcache.chat.replies.output import MakeId, Output
from agentcache.chat.replies.stepping import SteppingParser

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesParser(SteppingParser):
    """Reads one reply.  A call may lack its closing marker or its last brackets, and one pair of markers may hold several.

    Args:
        markers: the opening and the closing one.

    Every name makes a call.  What stands between markers and is no call comes out as content, without the markers.
    """

    def __init__(self, make_id: MakeId, markers: tuple[str, str] = (OPEN, CLOSE)) -> None:
        self._open, self._close = markers
        self._markers = MarkerFinder(markers)
        super().__init__(make_id, self._new_call)

    def _new_call(self, out: Output) -> CallObject:
        return CallObject(out, closing=self._close)

    def _cut(self) -> None:
        if self._state == self._call:
            self._cut_object()
        elif not (self._out.after_call and self._close.startswith(self._held)):
            self._out.content(self._held)

    def _first(self, text: str) -> str:
        """Text, up to a marker."""
        marker, rest = self._up_to_marker(self._markers, text)
        if marker is not None:
            self._out.edge()
        if marker == self._open:
            self._state = self._inside
        return rest

    def _inside(self, text: str) -> str:
        """After the opening marker, or after a call: another call, or the end of the calls."""
        text = text.lstrip(_BETWEEN)
        if text:
            self._state = self._first
            if text[0] == "{":
                self._object = self._new_call(self._out)
                self._state = self._call
        return text

    def _call(self, text: str) -> str:
        outcome, rest = self._read_object(text)
        if outcome is not Outcome.MORE:
            self._state = self._inside
        return rest


_BETWEEN = " \t\r\n,[]}"
