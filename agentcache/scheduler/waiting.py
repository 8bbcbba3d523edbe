"""The queue of those who were never admitted: priority classes, places, and how often each was overtaken.

Inside a class, a request is *overtaken* when one that arrived later is admitted before it.  Nobody is overtaken more often
than its *patience*: ``max_overtakes`` times for each step of prefill that it needs when it arrives.  Once that often, it is the
next of its class, and the policy is not asked::

    line, in order of arrival:   overtaken   [ 31, 24, 24, 9, 2, 0 ]      the third goes, then the policy chooses again
                                 patience    [ 48, 36, 24, 12, 12, 12 ]

Patience grows with cost because a dear request that is served early makes many wait, and takes pages that many would have
hit.  While pool and contexts are of a size, a flat bound turns every order into first come, first served, and first come,
first served makes everybody cold.

Of several that are due, the first to arrive goes: then nobody who is due is ever overtaken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import pairwise
from operator import attrgetter

from agentcache.cache.hashing import namespace_root
from agentcache.request import Sequence
from agentcache.scheduler.policy import Policy, Waiter

_RANK = attrgetter("rank")
_PLACE = attrgetter("place", "rank")

_PROGRAMS = 65_536
"""How many programs keep their place; the one that was not heard of for longest loses it."""


class Line:
    """One priority class.

    ``overtaken = admitted + index in the line - base`` holds for each waiter, with ``base`` taken when it joins: an earlier
    one's admission moves it up by one and leaves the count, a later one's adds one to it.
    """

    __slots__ = ("_admitted", "_by_place", "_due_at", "_due_is", "order", "turn")

    def __init__(self) -> None:
        self.order: list[Waiter] = []
        """In order of arrival."""
        self.turn = 0
        """Whose cached tokens are looked up next, beside those of the window."""
        self._by_place: list[Waiter] = []
        self._admitted = 0
        self._due_at = (0, 0)
        self._due_is: Waiter | None = None

    def join(self, waiter: Waiter) -> None:
        """Stand at the end, but by age before everybody whose program came later.

        A program's turn does not queue behind newcomers: it counts as having waited for as long as the oldest of those who
        stand behind its place.  While nobody does, it has no advantage, however long ago its program began.
        """
        waiter.base = self._admitted + len(self.order)
        self.order.append(waiter)
        at = bisect_left(self._by_place, _PLACE(waiter), key=_PLACE)
        if at < len(self._by_place):  # ages never grow along the places, so the next one's is the greatest behind
            waiter.since = min(waiter.since, self._by_place[at].since)
        self._by_place.insert(at, waiter)

    def overtaken(self, index: int) -> int:
        """How many that arrived later than the one at ``index`` were admitted before it."""
        return self._admitted + index - self.order[index].base

    def due(self) -> Waiter | None:
        """Whose patience is at its end: the first to arrive of those."""
        now = (self._admitted, len(self.order))
        if now != self._due_at:
            self._due_at = now
            late = (w for index, w in enumerate(self.order) if self._admitted + index - w.base >= w.patience)
            self._due_is = next(late, None)
        return self._due_is

    def admit(self, waiter: Waiter) -> None:
        self._remove(waiter)
        self._admitted += 1

    def withdraw(self, waiter: Waiter) -> None:
        """It leaves without being admitted and has overtaken nobody."""
        for behind in self.order[self._remove(waiter) :]:
            behind.base -= 1

    def _remove(self, waiter: Waiter) -> int:
        self._due_at = (-1, -1)
        index = bisect_left(self.order, waiter.rank, key=_RANK)
        del self.order[index]
        del self._by_place[bisect_left(self._by_place, _PLACE(waiter), key=_PLACE)]
        return index

    def check(self) -> Iterator[str]:
        """What is broken, in sentences."""
        counts = [self.overtaken(index) for index in range(len(self.order))]
        if any(a < b for a, b in pairwise(counts)) or min(counts, default=0) < 0:
            yield f"requests that wait were overtaken {counts} times, which cannot be"
        for count, waiter in zip(counts, self.order, strict=True):
            if count > waiter.patience:
                yield f"a request was overtaken {count} times, and no more than {waiter.patience} may be"
        if sorted(self.order, key=_RANK) != self.order or sorted(self.order, key=_PLACE) != self._by_place:
            yield "waiting requests are out of order"
        ages = [waiter.since for waiter in self._by_place]
        if sorted(ages) != ages:
            yield "a program's turn stands behind newcomers"


class WaitingQueue:
    """Everybody who waits for the first admission.

    Args:
        policy: orders those of one class.
        look_ahead: how many of a class are looked up in the cache and tried in one step.
        patience: how often a waiter that was just looked up may be overtaken.
        look_up: refreshes what a waiter says of the cache.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        look_ahead: int,
        patience: Callable[[Waiter], int],
        look_up: Callable[[Waiter], None],
    ) -> None:
        self._policy = policy
        self._look_ahead = look_ahead
        self._patience = patience
        self._look_up = look_up
        self._lines: dict[int, Line] = {}
        self._waiters: dict[Sequence, Waiter] = {}
        self._programs: OrderedDict[bytes, int] = OrderedDict()
        self._in_place: dict[bytes, Sequence] = {}
        """Which turn of a program stands in the program's place."""

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._waiters)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._waiters

    def add(self, sequence: Sequence, now: int) -> None:
        """Queue the first sequence of a request whose rank is set; ``now``: tokens processed so far."""
        place = self._place(sequence)
        waiter = Waiter(sequence, sequence.rank, place, since=now, total=len(sequence.tokens))
        self._look_up(waiter)
        waiter.patience = self._patience(waiter)
        self._waiters[sequence] = waiter
        self._lines.setdefault(sequence.request.priority, Line()).join(waiter)

    def _place(self, sequence: Sequence) -> int:
        """Arrival of the first turn of the sequence's program.

        A program's turns follow each other; of turns that wait at the same time, only the first stands in its place, so that
        nobody gets ahead by calling everything one program.
        """
        name = _program(sequence)
        if name is None:
            return sequence.rank
        place = self._programs.setdefault(name, sequence.rank)
        self._programs.move_to_end(name)
        if len(self._programs) > _PROGRAMS:
            self._programs.popitem(last=False)
        return place if self._in_place.setdefault(name, sequence) is sequence else sequence.rank

    def admit(self, sequence: Sequence) -> None:
        """It was admitted: everybody of its class who arrived before it was overtaken once."""
        self._leave(sequence, Line.admit)

    def withdraw(self, sequence: Sequence) -> None:
        """It ended while it waited."""
        self._leave(sequence, Line.withdraw)

    def _leave(self, sequence: Sequence, how: Callable[[Line, Waiter], None]) -> None:
        waiter = self._waiters.pop(sequence)
        name = _program(sequence)
        if name is not None and self._in_place.get(name) is sequence:
            del self._in_place[name]
        priority = sequence.request.priority
        line = self._lines[priority]
        how(line, waiter)
        if not line.order:
            del self._lines[priority]

    # -- order ----------------------------------------------------------------------------------------------------

    def candidates(self, now: int) -> Iterator[Waiter]:
        """Who is to be tried, best first; each is admitted, or passed over, before the next is asked for.

        Smaller priorities go first.  Whoever is due is next; while it cannot be admitted, nobody of its class is.
        """
        for priority in sorted(self._lines):
            line = self._lines[priority]
            ranked: Iterator[Waiter] | None = None
            tried: set[Waiter] = set()
            while line.order:
                choice = line.due()
                if choice is None:
                    ranked = ranked or iter(self._ranked(line, now))
                    choice = next((waiter for waiter in ranked if waiter not in tried), None)
                elif choice not in tried:
                    self._look_up(choice)
                else:
                    break
                if choice is None:
                    break
                tried.add(choice)
                yield choice

    def in_order(self, now: int) -> list[Waiter]:
        """Everybody, in the order in which they would be tried by what is known of them; ``now``: tokens processed so far."""
        waiters = self._waiters.values()
        return sorted(waiters, key=lambda waiter: (waiter.sequence.request.priority, *self._policy(waiter, now)))

    def _ranked(self, line: Line, now: int) -> list[Waiter]:
        """The best of a class by what was last known of all, in order of what is true of them now."""
        policy = self._policy
        window = line.order
        if len(window) > self._look_ahead:
            self._refresh(line)
            others = [waiter for waiter in window if not waiter.in_flight]
            window = nsmallest(self._look_ahead, others, key=lambda waiter: policy(waiter, now))
            if any(waiter.held_up for waiter in window):
                others = [waiter for waiter in others if not waiter.held_up]
                window = nsmallest(self._look_ahead, others, key=lambda waiter: policy(waiter, now))
        for waiter in window:
            self._look_up(waiter)
        return sorted(window, key=lambda waiter: policy(waiter, now))

    def _refresh(self, line: Line) -> None:
        """Look up some of those outside the window too, in turn, so that nobody's figures stay old."""
        begin = line.turn % len(line.order)
        end = begin + max(1, self._look_ahead // 4)
        for waiter in line.order[begin:end]:
            self._look_up(waiter)
        line.turn = end

    def check(self) -> Iterator[str]:
        """What is broken, in sentences."""
        for line in self._lines.values():
            yield from line.check()
        if sum(len(line.order) for line in self._lines.values()) != len(self._waiters):
            yield "the lines do not hold exactly those who wait"


def _program(sequence: Sequence) -> bytes | None:
    """Of the same name in another namespace is another program; names may be long."""
    request = sequence.request
    return None if request.program is None else namespace_root("program", request.root, request.program)
