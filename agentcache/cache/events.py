"""What happened to the cache, as data.  Metrics, explanations and replay all read these.

What happens to every page is a named tuple, which is made faster than a frozen dataclass.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Hit:
    """A prompt found ``tokens`` of its tokens cached."""

    tokens: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Missed:
    """A prompt was not cached further than ``at_token``, for the reason ``code``."""

    code: str
    at_token: int


class PageStored(NamedTuple):
    key: bytes
    parent: bytes
    page: int


class PageEvicted(NamedTuple):
    """``age`` counts cache operations since the page was last used."""

    key: bytes
    page: int
    reason: str
    age: int


@dataclass(frozen=True, slots=True)
class Forked:
    pages: int


@dataclass(frozen=True, slots=True)
class PageCopied:
    """Copy on write: the first ``tokens`` tokens of ``source`` now stand in ``target``."""

    source: int
    target: int
    tokens: int


@dataclass(frozen=True, slots=True)
class PageLoaded:
    """A page came back from ``tier`` (``host``, ``disk`` or ``store``)."""

    key: bytes
    page: int
    tier: str


@dataclass(frozen=True, slots=True)
class PinLapsed:
    """A pin ended: ``expired``, ``budget`` (newer pins need the room), ``room`` (requests do), ``quota``
    (its namespace keeps too much) or ``unpinned``."""

    pages: int
    reason: str


Event = Hit | Missed | PageStored | PageEvicted | Forked | PageCopied | PageLoaded | PinLapsed


class EventLog:
    """The last ``keep`` events, a count of every kind, and listeners that see each one as it happens."""

    def __init__(self, keep: int = 4096) -> None:
        self.recent: deque[Event] = deque(maxlen=keep)
        self.counts: Counter[str] = Counter()
        self.evictions: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self._listeners: list[Callable[[Event], None]] = []

    def listen(self, listener: Callable[[Event], None]) -> None:
        self._listeners.append(listener)

    def add(self, event: Event) -> None:
        self.recent.append(event)
        self.counts[type(event).__name__] += 1
        if isinstance(event, PageEvicted):
            self.evictions[event.reason] += 1
        elif isinstance(event, Missed):
            self.misses[event.code] += 1
        for listener in self._listeners:
            listener(event)
