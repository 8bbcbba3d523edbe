"""Pieces on their way out: neighbours of one kind are joined, and white space around calls is left out."""

from __future__ import annotations

from collections.abc import Callable

from agentcache.chat.replies.pieces import CallArguments, CallStart, Content, Piece

MakeId = Callable[[int], str]
"""The id of call number so many."""


class Output:
    """Collects what one ``push`` found.

    White space right before the first call, between calls, and right after the last one belongs to the wire format: it is no
    content.  Whether white space is such is known when something follows it, so it waits until then::

        "Let me look.\\n\\n" call "\\n" call "\\n"        "Let me look.\\n\\nIt is here.\\n"
         content.....         -         -          -     content.....................
    """

    def __init__(self, make_id: MakeId) -> None:
        self._make_id = make_id
        self._pieces: list[Piece] = []
        self._kind: int | None = None
        """Index of the call whose arguments ``_parts`` are; -1: they are content."""
        self._parts: list[str] = []
        self._blank: list[str] = []
        self._after_call = False
        self.calls = 0
        """How many calls began so far."""

    def content(self, text: str) -> None:
        """Text that is no part of a call."""
        if self._after_call:
            text = text.lstrip()
            if not text:
                return
            self._after_call = False
        shown = text.rstrip()
        if shown:
            self._add(-1, "".join(self._blank) + shown)
            self._blank = []
        if len(shown) < len(text):
            self._blank.append(text[len(shown) :])

    def call(self, name: str, call_id: str | None = None) -> int:
        """A call begins; returns its index.  White space before it is dropped."""
        self._settle()
        self.edge()
        index = self.calls
        self.calls += 1
        self._pieces.append(CallStart(index, call_id or self._make_id(index), name))
        return index

    def edge(self) -> None:
        """A marker stands here: white space before it is no content, nor is white space after it."""
        self._blank = []
        self._after_call = True

    def arguments(self, index: int, text: str) -> None:
        """More of the arguments of call ``index``."""
        if text:
            self._add(index, text)

    def take(self) -> list[Piece]:
        """What was collected since the last time."""
        if not self._pieces and self._kind is None:
            return []
        self._settle()
        pieces, self._pieces = self._pieces, []
        return pieces

    def finish(self) -> list[Piece]:
        """The same at the end of the reply: white space at the end of the last text is part of it."""
        if self._blank:
            self._add(-1, "".join(self._blank))
            self._blank = []
        return self.take()

    def _add(self, kind: int, text: str) -> None:
        if kind != self._kind:
            self._settle()
            self._kind = kind
        self._parts.append(text)

    def _settle(self) -> None:
        if self._kind is not None:
            text = "".join(self._parts)
            self._pieces.append(Content(text) if self._kind < 0 else CallArguments(self._kind, text))
            self._kind = None
            self._parts = []
