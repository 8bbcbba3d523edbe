"""Who is tried first among those who wait.

A policy is a function ``key(waiter, now) -> tuple``; the smallest key goes first.  ``now`` counts tokens processed, not
seconds, so that a schedule replays exactly.  To add a policy, write its function and enter it in ``POLICIES``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentcache.request import Sequence


@dataclass(slots=True, eq=False)
class Waiter:
    """A sequence that was never admitted, and what policies may know of it.

    Attributes:
        rank: order of arrival.
        place: order of arrival of the first turn of its program; ``rank`` where there is none.
        since: tokens that had been processed when it took its place in the queue (``Line.join`` says which place).
        total: tokens of its prompt.
        uncached: tokens that it would have to compute if it were admitted now; a hint, at least 1.
        pages: whole pages that the device's cache held when it was last looked up.
        below: whole pages behind those that a lower tier held then.
        in_flight: whether a running sequence was computing its next page then.
        patience: how often it may be overtaken.
        base: see ``waiting.Line``.
    """

    sequence: Sequence
    rank: int
    place: int
    since: int
    total: int
    uncached: int = 1
    pages: int = 0
    below: int = 0
    in_flight: bool = False
    patience: int = 0
    base: int = 0

    @property
    def held_up(self) -> bool:
        """Whether it waits for something other than its turn: it keeps its place, and nobody needs to try it."""
        errand = self.sequence.errand
        return self.in_flight or (errand is not None and errand.pending and not self.fully_cached)

    @property
    def fully_cached(self) -> bool:
        """Whether no whole page is left to compute."""
        return self.uncached <= self.sequence.tokens.page_size


Policy = Callable[[Waiter, int], tuple[float, ...]]


def first_come(waiter: Waiter, now: int) -> tuple[float, ...]:
    """In order of arrival; a program's turns count from its first."""
    return waiter.place, waiter.rank


def longest_prefix(waiter: Waiter, now: int) -> tuple[float, ...]:
    """Most cached tokens first.  Gives the best median and keeps cold prompts waiting up to the bound."""
    return waiter.uncached - waiter.total, waiter.place, waiter.rank


def highest_response_ratio(waiter: Waiter, now: int) -> tuple[float, ...]:
    """``1 + tokens processed since arrival / uncached tokens``, highest first; the fully cached before all others.

    Highest response ratio next (Brinch Hansen, 1971) with the uncached tokens as the service time: cheap requests go early,
    and each costs the others only as long as they have waited less for every token of theirs.
    """
    if waiter.fully_cached:
        return 0, waiter.place, waiter.rank
    return 1, (waiter.since - now) / waiter.uncached, waiter.place, waiter.rank


POLICIES: dict[str, Policy] = {
    "hrrn": highest_response_ratio,
    "fcfs": first_come,
    "longest-prefix": longest_prefix,
}
