"""Markers in a text that arrives in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class Found(NamedTuple):
    """``text[:end]`` is free of markers; ``marker`` follows it, if one was found.

    Attributes:
        end: where the marker begins, or where an unfinished one might.
        marker: the whole marker; ``None``: none so far.
    """

    end: int
    marker: str | None


class MarkerFinder:
    """Finds the leftmost of some markers; none may be the beginning of another.

    A text that ends in the beginning of a marker is to be looked at again when more of it is known::

        Let me see. <tool_c
                    ^ end, marker None
    """

    def __init__(self, markers: Iterable[str]) -> None:
        words = tuple(markers)
        self._pattern = re.compile("|".join(map(re.escape, words)))
        self._beginning = re.compile("|".join(rf"{_beginnings(word)}\Z" for word in words))
        self._longest = max(map(len, words))

    def find(self, text: str, start: int = 0) -> Found:
        """The first marker at or after ``start``."""
        match = self._pattern.search(text, start)
        if match is not None:
            return Found(match.start(), match.group())
        match = self._beginning.search(text, max(start, len(text) - self._longest + 1))
        return Found(len(text) if match is None else match.start(), None)


def _beginnings(word: str) -> str:
    """A pattern of the beginnings of ``word`` that are at least one character long and not all of it."""
    pattern = ""
    for char in reversed(word[1:-1]):
        pattern = f"(?:{re.escape(char)}{pattern})?"
    return re.escape(word[0]) + pattern
