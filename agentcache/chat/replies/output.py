"""Pieces on their way out: neighbours of one kind are joined, and white space around calls is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentcache.chat.replies.pieces import CallArguments, CallStart, Content, Piece

MakeId = Callable[[int], str]
"""The id of call number so many."""

_SLICE = 4096


def slices(text: str) -> Sequence[str]:
    """``text`` in parts: parsers hand on what is left of one, and what is handed on is copied."""
    if len(text) <= _SLICE:
        return (text,)
    return [text[start : start + _SLICE] for start in range(0, len(text), _SLICE)]


class Output:
    """Collects what one ``push`` found.

    White space before the first call, between calls and after the last one belongs to the wire format and is no content.  Only
    where calls have text on both sides, the first white space between the two stays, so that they do not run together.  At
    the end of a reply that ends in text, white space is part of it::

        "Let me look.\\n\\n" call "\\n" call "\\n"                    Let me look.
        "Let me look.\\n\\n" call "\\n" call "\\nIt is here.\\n"     Let me look.\\n\\nIt is here.\\n
    """

    def __init__(self, make_id: MakeId) -> None:
        self._make_id = make_id
        self._pieces: list[Piece] = []
        self._kind: int | None = None
        """Index of the call whose arguments ``_parts`` are; -1: they are content."""
        self._parts: list[str] = []
        self._blank: list[str] = []
        """White space since the last text, and before the first call after it."""
        self._gap: list[str] = []
        """White space since the last call."""
        self.after_call = False
        """Whether nothing but white space came since the last marker or call."""
        self._shown = False
        self.calls = 0
        """How many calls began so far."""

    def content(self, text: str) -> None:
        """Text that is no part of a call."""
        if self.after_call:
            rest = text.lstrip()
            if len(rest) < len(text):
                self._gap.append(text[: len(text) - len(rest)])
            text = rest
            if not text:
                return
            self.after_call = False
            self._blank = (self._blank or self._gap) if self._shown else []
        shown = text.rstrip()
        if shown:
            self._add(-1, "".join(self._blank) + shown)
            self._blank = []
            self._shown = True
        if len(shown) < len(text):
            self._blank.append(text[len(shown) :])

    def call(self, name: str, call_id: str | None = None) -> int:
        """A call begins; returns its index."""
        self._settle()
        self.edge()
        index = self.calls
        self.calls += 1
        self._pieces.append(CallStart(index, call_id or self._make_id(index), name))
        return index

    def edge(self) -> None:
        """Here is a marker, or a call: white space on either side of it is no content."""
        if self.after_call:
            self._blank = self._blank or self._gap
        self._gap = []
        self.after_call = True

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
        """The same at the end of the reply."""
        if self._blank and not self.after_call:
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
