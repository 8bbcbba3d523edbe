"""Finds the earlier request whose beginning is most like a new one's: the same agent, with something filled in.

A beginning is cut into pieces at line ends and sentence ends.  The pieces with the smallest hashes are its sketch, and
sketches are compared by what they have in common: a slot of any form changes the one piece that it stands in.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from heapq import nsmallest

from xxhash import xxh3_64_intdigest

_PIECE = re.compile(r"[^\n.!?;]{12,}")
_SKETCH = 48
_KEPT = 50_000
"""Pieces that are remembered."""
_SHARING = 4
"""Sessions that are remembered for a piece: the latest."""
_LIKE = 3
"""A beginning is like another one when at least one in so many of its pieces is the same."""


class Families:
    """Sessions by the beginnings of their prompts."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, tuple[int, ...]] = OrderedDict()

    def find(self, sketch: frozenset[int], but: int) -> list[int]:
        """The sessions whose beginnings are most like that of ``sketch``, the best first, ``but`` left out."""
        votes = Counter(session for piece in sketch for session in self._sessions.get(piece, ()) if session != but)
        least = max(1, len(sketch) // _LIKE)
        ranked = sorted(votes.items(), key=lambda vote: (vote[1], vote[0]), reverse=True)
        return [session for session, count in ranked if count >= least]

    def add(self, sketch: frozenset[int], session: int) -> None:
        """``session`` begins so."""
        for piece in sketch:
            others = [number for number in self._sessions.pop(piece, ()) if number != session]
            self._sessions[piece] = (*others[1 - _SHARING :], session)
        while len(self._sessions) > _KEPT:
            self._sessions.popitem(last=False)


def sketch_of(text: str) -> frozenset[int]:
    """Hashes of the pieces of ``text``, the smallest ones of a long text."""
    pieces = {xxh3_64_intdigest(piece.strip().encode("utf-8", "surrogatepass")) for piece in _PIECE.findall(text)}
    return frozenset(nsmallest(_SKETCH, pieces))
