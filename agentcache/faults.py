"""Faults and time, passed in so that tests can command both (``--enable-test-hooks``)."""

from __future__ import annotations

import time
from collections import defaultdict

SITES = ("forward", "sampler", "alloc", "disk_write", "host_copy")


class InjectedFaultError(RuntimeError):
    """Raised where a test asked for a failure."""


class Faults:
    """Failures and delays that were asked for, by site; each fires once.  Costs a dictionary look-up where none is."""

    def __init__(self) -> None:
        self._armed: defaultdict[str, list[tuple[int, float | None]]] = defaultdict(list)
        self._calls: dict[str, int] = dict.fromkeys(SITES, 0)

    def arm(self, site: str, at: int, delay_ms: float | None = None) -> None:
        """Fail (or, with ``delay_ms``, delay) the ``at``-th call of ``site`` from now; 1 is the next.

        Raises:
            ValueError: no such site, or ``at`` below 1.
        """
        if site not in SITES:
            raise ValueError(f"site: got {site!r}, expected one of {', '.join(SITES)}")
        if at < 1:
            raise ValueError(f"at: got {at}, expected 1 (the next call) or more")
        self._armed[site].append((self._calls[site] + at, delay_ms))

    def trip(self, site: str) -> None:
        """Called by the code at ``site``.

        Raises:
            InjectedFaultError: this call was armed to fail.
        """
        self._calls[site] += 1
        armed = self._armed.get(site)
        if not armed:
            return
        now = self._calls[site]
        for entry in [entry for entry in armed if entry[0] == now]:
            armed.remove(entry)
            if entry[1] is None:
                raise InjectedFaultError(f"injected fault at {site}")
            time.sleep(entry[1] / 1000)


class Clock:
    """Monotonic seconds that a test can push forward."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def advance(self, seconds: float) -> None:
        """Raises ValueError when ``seconds`` is negative: this clock never goes back."""
        if not seconds >= 0:
            raise ValueError(f"advance_s: got {seconds}, expected 0 or more")
        self._ahead += seconds
