"""Whether a store answers: after failures nobody waits for it, until a ping says that it is back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

_LIMIT = 2
"""So many failures in a row are no accident."""
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 5.0


class Circuit:
    """Closed while the store answers, open after it failed repeatedly.  Safe to use from any thread.

    Args:
        name: of the store, for the log.
        was_told: the log says already that the store does not answer: whoever opened it said so.

    ::

        closed ──2 failures in a row, or a failed ping──► open: nothing is asked but pings, after 0.25 s, then twice as long,
           ▲                                                │        up to 5 s
           └──────────────── something succeeds ◄───────────┘
    """

    def __init__(self, name: str, *, was_told: bool = False) -> None:
        self._name = name
        self._was_told = was_told
        self._lock = threading.Lock()
        self._failures = 0
        self._pause_s = _FIRST_PAUSE_S
        self._trouble: str | None = None
        self.recoveries = 0
        """How often it answered again."""
        self.recovered: Callable[[], None] = _nobody
        """Called when it answers again, before anybody can use it."""

    @property
    def trouble(self) -> str | None:
        """Why it is open; ``None`` while it is closed."""
        return self._trouble

    @property
    def pause_s(self) -> float:
        """Seconds until the next ping."""
        return self._pause_s

    def succeeded(self) -> None:
        if not self._failures:  # the way of nearly every call
            return
        with self._lock:
            was = self._trouble
            if was is not None:
                self.recovered()
                self.recoveries += 1
            self._failures, self._trouble, self._pause_s = 0, None, _FIRST_PAUSE_S
        if was is not None:
            logger.warning("%s answers again", self._name)

    def failed(self, why: str, *, at_once: bool = False) -> None:
        """
        Args:
            why: a sentence without secrets.
            at_once: one such failure is enough.
        """
        with self._lock:
            self._failures += 1
            if self._trouble is not None:
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            elif at_once or self._failures >= _LIMIT:
                self._trouble = why
                if not self._was_told:
                    logger.warning("%s is not used until it answers again: %s", self._name, why)
                self._was_told = False


def _nobody() -> None:
    """Nobody is told."""
