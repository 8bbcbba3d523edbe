"""When pages are fetched from a shared store rather than computed: measured prices of both, and what follows from them.

::

    seconds to fetch k pages   =  latency + k * bytes of a page * seconds a byte      (+ what stands in line before)
    seconds to compute them    =  k * tokens of a page * seconds a token

Both grow with k, so either no number of pages pays, or every number beyond a least one does: then as many as arrive in time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_NEWER = 0.5
"""Weight of the last measurement against all before it.  Networks change at once, so little is remembered."""

_FIRST_TRANSFERS = 3
"""The first of all is slow for reasons of its own (a connection is made), so nothing is concluded from it alone."""

_SHORTEST_S = 1e-6
"""No transfer takes no time at all."""


class TransferLine:
    """What the store of late took to answer at all (*latency*), and for each byte beyond that.

    Latency is measured where next to nothing is transferred: pings, and questions for which keys there are.  What a transfer
    takes beyond it is laid to its bytes, so that large transfers decide what a byte costs.
    """

    def __init__(self) -> None:
        self.latency_s: float | None = None
        """``None`` before anything was measured."""
        self._bytes = 0.0
        self._seconds = 0.0

    @property
    def seconds_per_byte(self) -> float | None:
        """``None`` before any transfer."""
        return self._seconds / self._bytes if self._bytes else None

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second; ``None`` before any transfer."""
        return self._bytes / self._seconds if self._bytes else None

    def answered(self, seconds: float) -> None:
        """The store took so long to answer with next to nothing."""
        seconds = max(seconds, _SHORTEST_S)
        self.latency_s = seconds if self.latency_s is None else self.latency_s + _NEWER * (seconds - self.latency_s)

    def transferred(self, size: int, seconds: float) -> None:
        """``size`` bytes took so long."""
        if size > 0:
            beyond = max(seconds - (self.latency_s or 0.0), _SHORTEST_S)
            self._bytes = self._bytes * _NEWER + size
            self._seconds = self._seconds * _NEWER + beyond


@dataclass(frozen=True, slots=True)
class Offer:
    """Pages that could be fetched.

    Attributes:
        pages: how many, one after the other.
        token_s: seconds that computing one token takes; 0 where that is not known yet.
        left_s: seconds until they must have arrived.
        ahead_s: seconds until the transfer can begin.
    """

    pages: int
    token_s: float
    left_s: float = math.inf
    ahead_s: float = 0.0


class FetchGate:
    """Decides how many pages to fetch.  Safe to use from any thread.

    Args:
        page_bytes, page_tokens: of one page.
        clock: seconds.
    """

    FLOOR_S = 0.05
    """Deadlines are not shorter: the clock of a busy machine is no finer."""
    STALE_S = 5.0
    """A closed gate looks again when what it knows is older than that."""

    def __init__(self, page_bytes: int, page_tokens: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.page_bytes = page_bytes
        self.page_tokens = page_tokens
        self._line = TransferLine()
        self._clock = clock
        self._measured = -math.inf
        self._transfers = 0
        self._lock = threading.Lock()

    # -- measuring ------------------------------------------------------------------------------------------------

    def answered(self, seconds: float) -> None:
        """The store took so long to answer with next to nothing."""
        with self._lock:
            self._line.answered(seconds)

    def transferred(self, size: int, seconds: float) -> None:
        """``size`` bytes took so long."""
        with self._lock:
            self._line.transferred(size, seconds)
            self._measured = self._clock()
            self._transfers += 1

    @property
    def latency_s(self) -> float | None:
        return self._line.latency_s

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second; ``None`` before any transfer."""
        return self._line.bandwidth

    @property
    def stale(self) -> bool:
        """Whether the last transfer was so long ago that the network may be another by now."""
        return self._clock() - self._measured > self.STALE_S

    def looked(self) -> None:
        """Somebody measures anew: nobody else needs to, for a while."""
        with self._lock:
            self._measured = self._clock()

    # -- deciding -------------------------------------------------------------------------------------------------

    def _prices(self) -> tuple[float, float | None, int]:
        """Latency in seconds, seconds a byte (``None`` until enough was transferred to tell), and transfers so far."""
        with self._lock:
            byte_s = self._line.seconds_per_byte if self._transfers >= _FIRST_TRANSFERS else None
            return self._line.latency_s or 0.0, byte_s, self._transfers

    def worth(self, offer: Offer) -> int:
        """How many of the pages to fetch: as many as arrive in time if those cost less than to compute them, else none.

        The first transfers are the measurement, and are small: one page, two, four.
        """
        latency, byte_s, transfers = self._prices()
        if byte_s is None:
            pages = min(2**transfers, offer.pages)
            fetch_s = offer.ahead_s + latency
        else:
            page_s = self.page_bytes * byte_s
            in_time = (offer.left_s - offer.ahead_s - latency) / page_s
            pages = min(offer.pages, max(0, math.floor(min(in_time, offer.pages))))
            fetch_s = offer.ahead_s + latency + pages * page_s
        if offer.left_s <= 0 or fetch_s > offer.left_s:
            return 0
        pays = offer.token_s <= 0 or fetch_s < pages * self.page_tokens * offer.token_s
        return pages if pays else 0

    def deadline_s(self, pages: int, token_s: float, longest_s: float) -> float:
        """How long a request waits for ``pages`` pages: no longer than computing them takes, nor than ``longest_s``."""
        if token_s <= 0:
            return longest_s
        return min(longest_s, max(self.FLOOR_S, pages * self.page_tokens * token_s))

    def open_for(self, token_s: float, longest_s: float) -> bool:
        """Whether any number of pages would be fetched at these prices, within a deadline of ``longest_s``."""
        latency, byte_s, _ = self._prices()
        if byte_s is None or token_s <= 0:
            return latency < longest_s
        saved = self.page_tokens * token_s - self.page_bytes * byte_s
        if saved <= 0:
            return False
        least = latency / saved
        return latency + least * self.page_bytes * byte_s < longest_s
