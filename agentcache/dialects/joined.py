"""Texts that several strings of a body were joined to.

::

    content[0].text  "Read "      ┐
    content[1].text  "a.py"       ┴►  "Read a.py"   =   [Piece(0, "….content[0].text"), Piece(5, "….content[1].text")]
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple


class Piece(NamedTuple):
    """A string of the body, from character ``start`` of the joined text to the next piece.

    Attributes:
        path: JSON path of the string.
        char: character of that string that the piece begins with; ``None`` where the text is not the string's own.
    """

    start: int
    path: str
    char: int | None = 0


class Joined:
    """A text in the making."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._pieces: list[Piece] = []
        self._length = 0

    def add(self, text: str, path: str, char: int | None = 0) -> None:
        self._pieces.append(Piece(self._length, path, char))
        self._texts.append(text)
        self._length += len(text)

    def __bool__(self) -> bool:
        return bool(self._texts)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(self._pieces)


def origin(pieces: Sequence[Piece], char: int | None) -> tuple[str, int | None] | None:
    """Path and character that character ``char`` of a joined text comes from; of ``None``, the first path.

    ``None`` of a text that no string of the body is part of.
    """
    if not pieces:
        return None
    if char is None:
        return pieces[0].path, None
    piece = pieces[max(0, bisect_right(pieces, char, key=lambda piece: piece.start) - 1)]
    return piece.path, None if piece.char is None else piece.char + max(0, char - piece.start)
