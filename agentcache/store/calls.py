"""What every store counts and how it knows that a call has taken long enough."""

from __future__ import annotations

import threading
import time
from collections import Counter


class Counts:
    """What happened, by name; from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, times: int = 1) -> None:
        if times:
            with self._lock:
                self._counts[name] += times

    def came(self, values: list[bytes | None], asked: int) -> list[bytes | None]:
        """Count what came of ``asked`` pages: ``read``, ``missing`` and ``late``, which is what did not come in time.

        Returns:
            ``values`` with ``None`` for each that was late.
        """
        read = sum(value is not None for value in values)
        late = asked - len(values)
        self.add("read", read)
        self.add("missing", len(values) - read)
        self.add("late", late)
        return values + [None] * late

    def told(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


class Deadline:
    """When a call that began now must have ended."""

    def __init__(self, timeout_s: float) -> None:
        self._at = time.monotonic() + timeout_s

    @property
    def left(self) -> float:
        """Seconds; 0 when it has passed."""
        return max(0.0, self._at - time.monotonic())

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self._at
