"""Which pages a store is taken to have, so that they are not written again and again."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

_MOST = 65_536
BELIEVED_S = 600.0
"""A store forgets what it has no room for, and does not say so."""


class KnownKeys:
    """Keys that were written, or seen, of late; at most 65,536.  Safe to use from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        self._bad: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, key: bytes) -> bool:
        seen = self._seen.get(key)
        return seen is not None and self._clock() - seen < BELIEVED_S

    def saw(self, keys: Iterable[bytes]) -> None:
        now = self._clock()
        with self._lock:
            for key in keys:
                if key not in self._bad:
                    self._seen[key] = now
                    self._seen.move_to_end(key)
            while len(self._seen) > _MOST:
                self._seen.popitem(last=False)

    def wrote(self, keys: Iterable[bytes]) -> None:
        """They are there, and good."""
        keys = list(keys)
        with self._lock:
            for key in keys:
                self._bad.pop(key, None)
        self.saw(keys)

    def refused(self, key: bytes) -> None:
        """Something is there that is not the page: that it is there must keep nobody from writing it."""
        with self._lock:
            self._seen.pop(key, None)
            self._bad[key] = None
            while len(self._bad) > _MOST:
                self._bad.popitem(last=False)

    def is_bad(self, key: bytes) -> bool:
        return key in self._bad

    def clear(self) -> None:
        with self._lock:
            self._seen.clear()

    def lost(self, key: bytes) -> None:
        """It is not there (any more)."""
        with self._lock:
            self._seen.pop(key, None)
