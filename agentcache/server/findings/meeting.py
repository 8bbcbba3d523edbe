"""Where two sequences of tokens that have parted become equal again: what lies behind is what the parting cost."""

from __future__ import annotations

from dataclasses import dataclass

from agentcache.cache.hashing import TOKEN_BYTES
from agentcache.chat.text import common_length

LEAST = 16
"""Tokens; fewer are equal by chance, or because every template writes them."""
_GRAM = 8
_MOST = 1024
"""Tokens behind the parting in which a meeting is looked for."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """
    ::

        was   … equal )( slot: was )( equal again: run )( …
        now   … equal )( slot: now )( equal again: run )( …

    Attributes:
        was, now: tokens of either side between the parting and the meeting; both are 0 never.
        run: tokens that are equal behind it.
    """

    was: int
    now: int
    run: int

    @property
    def is_a_slot(self) -> bool:
        """Whether more is equal than differs: then both are the same text with something else filled in."""
        return self.run >= max(self.was, self.now)


def meet(was: bytes, now: bytes, least: int = LEAST) -> Meeting | None:
    """The first meeting with a run of ``least`` tokens (16 at least, or it may not be found) in packed ids.

    Of ``was`` every eighth gram of eight tokens is looked up, so a run of 15 tokens is always seen.
    """
    width = _GRAM * TOKEN_BYTES
    known: dict[bytes, int] = {}
    for start in range(0, min(len(was), _MOST * TOKEN_BYTES) - width + 1, width):
        known.setdefault(was[start : start + width], start)
    start, end = 0, min(len(now), _MOST * TOKEN_BYTES) - width
    while start <= end:
        place = known.get(now[start : start + width])
        if place is None:
            start += TOKEN_BYTES
            continue
        first, second = _backwards(was, place, now, start)
        run = common_length(was[first:], now[second:]) // TOKEN_BYTES
        if run >= least:
            return Meeting(first // TOKEN_BYTES, second // TOKEN_BYTES, run)
        start = max(start + TOKEN_BYTES, second + run * TOKEN_BYTES - width + TOKEN_BYTES)
    return None


def _backwards(was: bytes, place: int, now: bytes, start: int) -> tuple[int, int]:
    """The first places from which both are equal up to the given ones."""
    while place and start and was[place - TOKEN_BYTES : place] == now[start - TOKEN_BYTES : start]:
        place, start = place - TOKEN_BYTES, start - TOKEN_BYTES
    return place, start
