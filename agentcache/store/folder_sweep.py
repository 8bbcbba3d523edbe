"""Keeps a folder of pages within its capacity, without a lock, an index, or a look at the whole folder.

::

    shards      | 00 | 01 | .. | 7e | 7f | 80 | .. | ff |      a page's shard is drawn by its name: shards fill alike
    looked at             └────────────┘ next ──►               one more for each 1/4096 of the capacity that is written here

    looked at last:  pages by last use  ├─ newest: their share of what fits ─┤─ older: gone when their shard's turn comes ─┤

What the shards that were looked at last hold, times the share of all shards that they are, is an estimate of the whole.  If that
is too much, the pages that have to go are those last used before a moment that follows from the same sample.  Every process that
writes does this on its own; two that remove the same pages at once only find some gone already.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections import OrderedDict
from typing import NamedTuple

from agentcache.store.calls import Counts, Deadline
from agentcache.store.folder_files import SHARDS, Files, listed, shard_name

_ROUNDS = 16
"""Times that a process looks at every shard while it writes as much as fits."""

_EASE = 4
"""Times as rarely, while there is room for much more."""

_KEPT = 7 / 8
"""Share of the capacity that is kept, since more arrives until a shard is looked at again."""

_ENOUGH = 4096
"""Pages that make a sample; with fewer, all shards are needed."""

_CUT_FOR = 16
"""Looks after which a large sample is sorted again; one shard changes little of it."""

Use = tuple[int, str, int]
"""When a page was last used (ns), its path, its bytes."""


class _Total(NamedTuple):
    shards: int
    pages: int
    used: int


class Sweeper:
    """
    Args:
        capacity: bytes that all processes together may keep in the folder.
        counts: gets ``evicted``.
    """

    def __init__(self, files: Files, capacity: int, counts: Counts) -> None:
        self.capacity = capacity
        self._files = files
        self._counts = counts
        self._limit = capacity * _KEPT
        self._seen: OrderedDict[int, list[Use]] = OrderedDict()
        self._total = _Total(0, 0, 0)
        self._cut: Use | None = None
        self._cut_for = 0
        """Looks for which the cut is taken to hold."""
        self._next = random.randrange(SHARDS)  # so that several processes look at different shards
        self._owed = 0.0
        self._sweeping = threading.Lock()

    @property
    def estimate(self) -> tuple[int, int]:
        """Pages and bytes in the folder, as the shards that were looked at last have it."""
        shards, pages, used = self._total
        share = SHARDS / max(1, shards)
        return round(pages * share), round(used * share)

    def wrote(self, size: int, deadline: Deadline) -> None:
        """Look at as many shards as that is worth, as far as there is time.

        Raises:
            OSError: the folder cannot be read.
        """
        rounds = _ROUNDS / _EASE if self._known and self.estimate[1] < self._limit / 2 else _ROUNDS
        self._owed += SHARDS * rounds * size / self.capacity
        if not self._sweeping.acquire(blocking=False):  # another thread is at it, and finds what is owed
            return
        try:
            while (self._owed >= 1 or not self._known) and not deadline.passed:
                self._owed = min(max(0.0, self._owed - 1), 2.0 * SHARDS)
                self._look_at(self._next)
                self._next = (self._next + 1) % SHARDS
        finally:
            self._sweeping.release()

    def full(self) -> None:
        """The file system has less room than ``capacity``: keep less, and look at everything again."""
        _, used = self.estimate
        if self._known and used:
            self._limit = min(self._limit, used * _KEPT)
        self._owed += SHARDS

    @property
    def _known(self) -> bool:
        """Whether what was looked at is enough to tell of the rest."""
        return self._total.shards == SHARDS or self._total.pages >= _ENOUGH

    def _look_at(self, shard: int) -> None:
        if shard == 0:
            self._files.sweep_incoming()
        known = self._known
        found = listed(self._files.pages / shard_name(shard))
        self._saw(shard, [(about.st_mtime_ns, path, about.st_size) for path, about in found])
        while (
            self._total.pages - len(next(iter(self._seen.values()))) >= _ENOUGH
        ):  # the rest is a sample too, and newer
            self._forget(next(iter(self._seen)))
        if not self._known:
            return
        if not known:  # those that were looked at before could not be judged
            self._owed += SHARDS
        self._cut_for -= 1
        if self._cut_for <= 0:
            self._cut = self._cutoff()
            self._cut_for = _CUT_FOR if self._total.pages > _ENOUGH // 16 else 1
        self._remove(shard, self._cut)

    def _saw(self, shard: int, uses: list[Use]) -> None:
        self._forget(shard)
        self._seen[shard] = uses  # as the newest
        shards, pages, used = self._total
        self._total = _Total(shards + 1, pages + len(uses), used + sum(use[2] for use in uses))

    def _forget(self, shard: int) -> None:
        uses = self._seen.pop(shard, None)
        if uses is not None:
            shards, pages, used = self._total
            self._total = _Total(shards - 1, pages - len(uses), used - sum(use[2] for use in uses))

    def _cutoff(self) -> Use | None:
        """The newest page that has to go, with all that are older."""
        room = self._limit * len(self._seen) / SHARDS
        if self._total.used <= room:
            return None
        for use in sorted((use for uses in self._seen.values() for use in uses), reverse=True):
            room -= use[2]
            if room < 0:
                return use
        return None

    def _remove(self, shard: int, cutoff: Use | None) -> None:
        if cutoff is None:
            return
        kept = [use for use in self._seen[shard] if use > cutoff]
        for _, path, _ in (use for use in self._seen[shard] if use <= cutoff):
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                os.unlink(path)
                self._counts.add("evicted")
        self._saw(shard, kept)
