"""When the engine counts as broken, and how it finds out that it is not any more.

::

    serving ──LIMIT failed steps in a row──► failing: nobody is admitted, /health is red, new requests get 503
       ▲                                        │
       └── a step succeeds ◄── probe: one token, no request, first after 0.5 s, then after twice as long, up to 30 s

Whoever waits when it begins goes on waiting: most failures pass.  After ``GIVE_UP_S`` they are told that it did not.
"""

from __future__ import annotations

import math

LIMIT = 5
"""So many failed steps in a row are no accident of the requests in them."""
FIRST_PROBE_S = 0.5
LONGEST_PAUSE_S = 30.0
GIVE_UP_S = 30.0


class StepHealth:
    """Counts failed steps.  Written by the engine's thread; other threads read ``failing``, ``reason`` and ``pause``."""

    def __init__(self) -> None:
        self.failures = 0
        """Failed steps and probes in a row."""
        self.failing = False
        self._began = 0.0
        self._pause = FIRST_PROBE_S
        self._next_probe = math.inf

    @property
    def reason(self) -> str:
        return f"the last {self.failures} steps failed" if self.failing else "ok"

    @property
    def pause(self) -> float:
        """Seconds between the last failure and the next probe."""
        return self._pause

    def succeeded(self) -> None:
        self.failures = 0
        self.failing = False
        self._pause = FIRST_PROBE_S
        self._next_probe = math.inf

    def failed(self, now: float) -> None:
        self.failures += 1
        if self.failing:
            self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        elif self.failures >= LIMIT:
            self.failing = True
            self._began = now
        if self.failing:
            self._next_probe = now + self._pause

    def next_probe(self) -> float | None:
        """When the next probe is due on the engine's clock; ``None`` while all is well."""
        return self._next_probe if self.failing else None

    def gives_up(self, now: float) -> bool:
        """Whether it has been failing for so long that nobody should be kept waiting."""
        return self.failing and now - self._began >= GIVE_UP_S
