"""Which replica holds which pages, as one ingress knows it.

::

    key of page 0   r0 r1 r2 . r4        every key has a bit for each replica
    key of page 1   r0 r1 .  . r4
    key of page 2   r0 .  .  . r4        a chain is walked until nobody is left: r1 has 2 pages, r0 and r4 have more

What was just sent to a replica is expected to be there soon: that stands in two young generations of the same kind, which
are forgotten one after the other, so that a burst with one beginning goes one way before any replica has said anything.

A bit whose replica left, or told everything anew, is retired: it is no longer looked at, and is cleared from the table little
by little before another replica gets it.  Leaving costs the same for one page as for a million.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from agentcache.routing.feed import KEY_BYTES, Cursor, FeedDelta, split_keys

_SLICE = 4096
"""Keys handled before others may come in; also how many are cleaned up each time."""


class _Bits:
    """Which bit stands for which replica; all of it under the table's lock."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        """Name to mask with one bit."""
        self.name: dict[int, str] = {}
        self.live = 0
        self.retired = 0
        """Bits that may still stand in the table and mean nothing."""

    def give(self, replica: str) -> None:
        free = ~(self.live | self.retired)
        bit = free & -free
        self.of[replica] = bit
        self.name[bit] = replica
        self.live |= bit

    def retire(self, replica: str) -> None:
        bit = self.of.pop(replica, 0)
        self.name.pop(bit, None)
        self.live &= ~bit
        self.retired |= bit


class ReplicaTable:
    """Pages of all replicas.  Thread-safe.

    Args:
        expect_s: what was sent is expected for this long at least, and twice as long at most.
        max_expected: pages that one generation of expectations may have.
    """

    def __init__(
        self, expect_s: float = 30.0, max_expected: int = 262_144, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._expect_s = expect_s
        self._max_expected = max_expected
        self._clock = clock
        self._held: dict[bytes, int] = {}
        self._young: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}
        self._turned_at = clock()
        self._bits = _Bits()
        self._cursors: dict[str, Cursor] = {}
        self._arrivals: dict[str, int] = {}
        self._masks: dict[int, int] = {}
        """One object for each mask that occurs: there are few, and a million keys."""
        self._sweep: list[bytes] = []
        self._sweeping = 0
        self._lock = threading.Lock()

    # -- replicas ---------------------------------------------------------------------------------------------------

    def join(self, replica: str) -> None:
        """Nothing is known of it yet.  Idempotent."""
        with self._lock:
            if replica not in self._bits.of:
                self._bits.give(replica)
                self._arrivals[replica] = 0

    def leave(self, replica: str) -> None:
        """Forget it.  Idempotent."""
        with self._lock:
            self._bits.retire(replica)
            self._cursors.pop(replica, None)
            self._arrivals.pop(replica, None)

    def __len__(self) -> int:
        """Keys in the table, each of which at least one replica holds or did so a short while ago."""
        return len(self._held)

    # -- what they tell ---------------------------------------------------------------------------------------------

    def cursor(self, replica: str) -> Cursor | None:
        """What to ask ``replica`` with."""
        with self._lock:
            return self._cursors.get(replica)

    def arrivals(self, replica: str) -> int:
        """Pages that came to ``replica`` since it is known, by its own word: how fast its memory turns over."""
        with self._lock:
            return self._arrivals.get(replica, 0)

    def apply(self, replica: str, delta: FeedDelta) -> bool:
        """Learn what ``replica`` told.  Answers may come late, twice, in any order or not at all.

        Returns:
            Whether what is known is now up to ``delta.cursor``; if not, ask again with ``cursor(replica)``.
        """
        with self._lock:
            if not self._in_order(replica, delta):
                return False
            if delta.whole:
                arrivals = self._arrivals.get(replica, 0)
                self._bits.retire(replica)
                self._bits.give(replica)
                self._arrivals[replica] = arrivals
            elif delta.start is not None and not delta.start.part:
                self._arrivals[replica] += len(delta.added) // KEY_BYTES
            bit = self._bits.of[replica]
        for keys, learn in ((delta.removed, self._remove), (delta.added, self._add)):
            names = split_keys(keys)
            for start in range(0, len(names), _SLICE):
                with self._lock:
                    if not bit & self._bits.live:  # it left, or told everything anew, in between
                        return False
                    learn(names[start : start + _SLICE], bit)
        with self._lock:
            if self._bits.of.get(replica) == bit:
                self._cursors[replica] = delta.cursor
            self._clean()
        return True

    def _in_order(self, replica: str, delta: FeedDelta) -> bool:
        """Whether ``delta`` can be learned on top of what is known.

        A change says what became of a key, not what was done to it, so an answer that begins earlier may be learned again as
        long as it ends no earlier than what is known.
        """
        if replica not in self._bits.of:
            return False
        known = self._cursors.get(replica)
        if delta.whole:
            return known is None or known.epoch != delta.cursor.epoch or known.change < delta.cursor.change
        if known is None or delta.start is None or known.epoch != delta.start.epoch:
            return False
        if known.part or delta.start.part:
            return known == delta.start
        return delta.start.change <= known.change <= delta.cursor.change

    def _add(self, keys: Sequence[bytes], bit: int) -> None:
        held, masks = self._held, self._masks
        for key in keys:
            mask = held.get(key, 0) | bit
            held[key] = masks.setdefault(mask, mask)

    def _remove(self, keys: Sequence[bytes], bit: int) -> None:
        held, masks = self._held, self._masks
        generations = [young for young in (self._young, self._old) if young]
        for key in keys:
            for young in generations:
                if key in young:
                    young[key] &= ~bit
            mask = held.get(key, 0)
            rest = mask & ~bit
            if rest:
                held[key] = masks.setdefault(rest, rest)
            elif mask:
                del held[key]

    def _clean(self) -> None:
        """Clear retired bits from some more keys."""
        if not self._sweep:
            if self._sweeping:  # all keys were looked at
                self._bits.retired &= ~self._sweeping
                self._sweeping = 0
            if not self._bits.retired:
                return
            self._sweeping = self._bits.retired
            for young in (self._young, self._old):
                for key in young:
                    young[key] &= ~self._sweeping
            self._sweep = list(self._held)
            self._masks = {mask: mask for mask in set(self._masks) if not mask & self._sweeping}
        self._remove(self._sweep[-_SLICE:], self._sweeping)
        del self._sweep[-_SLICE:]

    # -- what is expected -------------------------------------------------------------------------------------------

    def expect(self, replica: str, chain: Sequence[bytes]) -> None:
        """A prompt of these pages was sent to ``replica``."""
        with self._lock:
            bit = self._bits.of.get(replica, 0)
            if not bit:
                return
            self._turn()
            held, young, masks = self._held, self._young, self._masks
            for key in chain:
                if not held.get(key, 0) & bit:
                    mask = young.get(key, 0) | bit
                    young[key] = masks.setdefault(mask, mask)

    def forget(self, replica: str, chain: Sequence[bytes]) -> None:
        """It failed there: what the replica has not told is not expected any more."""
        with self._lock:
            bit = self._bits.of.get(replica, 0)
            for young in (self._young, self._old):
                for key in chain:
                    if young.get(key, 0) & bit:
                        young[key] &= ~bit

    def _turn(self) -> None:
        now = self._clock()
        if now - self._turned_at >= 2 * self._expect_s:
            self._old, self._young, self._turned_at = {}, {}, now
        elif now - self._turned_at >= self._expect_s or len(self._young) >= self._max_expected:
            self._old, self._young, self._turned_at = self._young, {}, now

    # -- questions --------------------------------------------------------------------------------------------------

    def held(self, chain: Sequence[bytes]) -> dict[str, int]:
        """How many pages of ``chain``, from its beginning without a gap, each replica holds or is expected to hold.

        Replicas that have none are left out.  O(pages of the longest), 0.1 µs each.
        """
        reach: dict[str, int] = {}
        with self._lock:
            self._turn()
            left = self._bits.live
            held = self._held.get
            expected = [young.get for young in (self._young, self._old) if young]
            for page, key in enumerate(chain):
                mask = held(key, 0)
                if left & ~mask:
                    for generation in expected:
                        mask |= generation(key, 0)
                    if gone := left & ~mask:
                        self._settle(reach, gone, page)
                        left &= mask
                        if not left:
                            return reach
            self._settle(reach, left, len(chain))
        return reach

    def _settle(self, reach: dict[str, int], bits: int, pages: int) -> None:
        while bits and pages:
            bit = bits & -bits
            reach[self._bits.name[bit]] = pages
            bits &= ~bit
