"""Host memory in which fetched pages wait for the requests that they were fetched for."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable

from agentcache.cache.tiers import StoredPage

_KEPT_S = 30.0
"""A request that waits longer for room on the device computes its pages, or finds them elsewhere."""


class Staging:
    """At most ``capacity`` bytes of pages, each only while a request that waits wants it.  Safe to use from any thread.

    Args:
        clock: seconds.
    """

    def __init__(self, capacity: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.capacity = capacity
        self.bytes = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted: Counter[bytes] = Counter()
        self._pages: OrderedDict[bytes, tuple[StoredPage, float]] = OrderedDict()
        """With the time of arrival, in order of it."""

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, key: bytes) -> bool:
        return key in self._pages

    def get(self, key: bytes) -> StoredPage | None:
        entry = self._pages.get(key)
        return None if entry is None else entry[0]

    def want(self, keys: Iterable[bytes]) -> None:
        """A request waits for these pages."""
        with self._lock:
            self._wanted.update(keys)

    def unwant(self, keys: Iterable[bytes]) -> None:
        """It waits for them no more; what nobody else waits for is dropped."""
        with self._lock:
            for key in keys:
                self._wanted[key] -= 1
                if self._wanted[key] <= 0:
                    del self._wanted[key]
                    self._drop(key)

    def put(self, page: StoredPage) -> bool:
        """Keep a page that arrived; ``False`` when nobody waits for it, or there is no room."""
        size = len(page.data)
        with self._lock:
            if not self._wanted[page.key]:
                del self._wanted[page.key]
                return False
            if page.key in self._pages:
                return True
            self._sweep()
            if self.bytes + size > self.capacity:
                return False
            self._pages[page.key] = page, self._clock()
            self.bytes += size
            return True

    def sweep(self) -> None:
        """Drop what nobody came for."""
        with self._lock:
            self._sweep()

    def _sweep(self) -> None:
        oldest = self._clock() - _KEPT_S
        while self._pages and next(iter(self._pages.values()))[1] < oldest:
            self._drop(next(iter(self._pages)))

    def _drop(self, key: bytes) -> None:
        entry = self._pages.pop(key, None)
        if entry is not None:
            self.bytes -= len(entry[0].data)

    def check(self, wanted: Counter[bytes]) -> list[str]:
        """What is broken, in sentences, if ``wanted`` counts what requests wait for."""
        faults = []
        with self._lock:
            if self._wanted != wanted:
                faults.append(f"{self._wanted.total()} pages are wanted from the store, requests want {wanted.total()}")
            held = sum(len(page.data) for page, _ in self._pages.values())
            if held != self.bytes or held > self.capacity:
                faults.append(f"{held} bytes of fetched pages are held, the count says {self.bytes} of {self.capacity}")
            if any(key not in self._wanted for key in self._pages):
                faults.append("a fetched page is kept that nobody wants")
        return faults
