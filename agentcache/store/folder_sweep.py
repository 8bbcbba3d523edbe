"""Keeps a folder of pages within its capacity, without a lock, an index, or a look at the whole folder.

::

    shards      | 00 | 01 | .. | 7e | 7f | 80 | .. | ff |      a page's shard is drawn by its name: shards fill alike
    looked at             └────────────┘ next ──►               one more for each 1/8192 of the capacity that is written here

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

from agentcache.store.calls import Counts, Deadline
from agentcache.store.folder_files import SHARDS, Files, listed, shard_name

_ROUNDS = 32
"""Times that a process looks at every shard while it writes as much as fits."""

_KEPT = 15 / 16
"""Share of the capacity that is kept, since more arrives until a shard is looked at again."""

_ENOUGH = 4096
"""Pages that make a sample; with fewer, all shards are needed."""

Use = tuple[int, str, int]
"""When a page was last used (ns), its path, its bytes."""


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
        self._next = random.randrange(SHARDS)  # so that several processes look at different shards
        self._owed = 0.0
        self._sweeping = threading.Lock()

    @property
    def estimate(self) -> tuple[int, int]:
        """Pages and bytes in the folder, as the shards that were looked at last have it."""
        sample = [use for uses in tuple(self._seen.values()) for use in uses]
        share = SHARDS / max(1, len(self._seen))
        return round(len(sample) * share), round(sum(use[2] for use in sample) * share)

    def wrote(self, size: int, deadline: Deadline) -> None:
        """Look at as many shards as that is worth, as far as there is time.

        Raises:
            OSError: the folder cannot be read.
        """
        self._owed += SHARDS * _ROUNDS * size / self.capacity
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
        return len(self._seen) == SHARDS or sum(map(len, tuple(self._seen.values()))) >= _ENOUGH

    def _look_at(self, shard: int) -> None:
        if shard == 0:
            self._files.sweep_incoming()
        found = listed(self._files.pages / shard_name(shard))
        self._seen[shard] = [(about.st_mtime_ns, path, about.st_size) for path, about in found]
        self._seen.move_to_end(shard)
        pages = sum(map(len, self._seen.values()))
        while (pages := pages - len(next(iter(self._seen.values())))) >= _ENOUGH:  # the rest is a sample, and newer
            self._seen.popitem(last=False)
        if self._known:
            self._remove(shard, self._cutoff())

    def _cutoff(self) -> Use | None:
        """The newest page that has to go, with all that are older."""
        room = self._limit * len(self._seen) / SHARDS
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
        self._seen[shard] = kept
