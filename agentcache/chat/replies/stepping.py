"""What the parsers of all wire formats have in common: they are in one state at a time, and states read on where others ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from agentcache.chat.replies.calls import CallObject, Outcome
from agentcache.chat.replies.markers import MarkerFinder
from agentcache.chat.replies.output import MakeId, Output, slices
from agentcache.chat.replies.pieces import Piece

State = Callable[[str], str]
"""Reads what it can of a text and returns the rest, which the state that is set by then reads; nothing: it needs more."""


class SteppingParser(ABC):
    """Reads one reply: a ``ReplyParser``.

    Args:
        call: the first object of a call; each next one is made when it begins.
    """

    def __init__(self, make_id: MakeId, call: Callable[[Output], CallObject]) -> None:
        self._out = Output(make_id)
        self._object = call(self._out)
        self._state: State = self._first
        self._held = ""
        """Text that waits for what follows it."""

    @abstractmethod
    def _first(self, text: str) -> str:
        """The state at the beginning of a reply."""

    @abstractmethod
    def _cut(self) -> None:
        """The reply ends in the present state: what is held back goes out as what it is."""

    def push(self, text: str) -> list[Piece]:
        for part in slices(text):
            while part:
                part = self._state(part)
        return self._out.take()

    def flush(self) -> list[Piece]:
        self._cut()
        self._held = ""
        return self._out.finish()

    def _up_to_marker(self, finder: MarkerFinder, text: str) -> tuple[str | None, str]:
        """Hand on what stands before the next marker, and hold back what may begin one; the marker and what follows it."""
        text = self._held + text
        end, marker = finder.find(text)
        self._out.content(text[:end])
        self._held = text[end:] if marker is None else ""
        return marker, "" if marker is None else text[end + len(marker) :]

    def _read_object(self, text: str, before: str = "") -> tuple[Outcome, str]:
        """More of the present object; one that turns out to be no call is content, and so is what stood ``before`` it."""
        outcome, rest = self._object.push(text)
        if outcome is Outcome.TEXT:
            self._out.content(before + self._object.raw)
        return outcome, rest

    def _cut_object(self, before: str = "") -> None:
        if self._object.flush() is Outcome.TEXT:
            self._out.content(before + self._object.raw)
