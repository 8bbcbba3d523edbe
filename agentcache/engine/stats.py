"""What the engine counts.  The server turns a snapshot of it into ``/metrics``."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentcache.cache.fetching import FarStats
from agentcache.cache.tiers import TierStats

SECONDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
TOKENS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


class Histogram:
    """Counts by bucket; bucket i holds values up to and including ``bounds[i]``, the last one the rest."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """As Prometheus wants it: each bound, and how many values lie at or below it."""
        total = 0
        for bound, count in zip((*map(str, map(float, self.bounds)), "+Inf"), self.counts, strict=True):
            total += count
            yield bound, total

    def copy(self) -> Histogram:
        twin = Histogram(self.bounds)
        twin.counts = self.counts.copy()
        twin.sum = self.sum
        return twin


class PrefillCost:
    """What computing one prompt token costs, in seconds, estimated from the steps that computed some.

    A line through the origin, fitted by least squares: seconds = cost * tokens, where recent steps weigh more.  Steps with
    many prompt tokens decide it, which is how tokens that were found cached would have been computed; a step that redoes
    one token costs nearly as much as one of a hundred and says little about either.
    """

    __slots__ = ("_moment", "_product")
    _KEPT = 0.99
    """How much an older step weighs beside the one after it."""

    def __init__(self) -> None:
        self._moment = 0.0
        self._product = 0.0

    def observe(self, prompt_tokens: int, rows: int, seconds: float) -> None:
        """A step of ``rows`` tokens, of which ``prompt_tokens`` were prompt, took ``seconds``; each row bears its share."""
        if prompt_tokens > 0 and seconds > 0:
            self._moment = self._moment * self._KEPT + prompt_tokens**2
            self._product = self._product * self._KEPT + prompt_tokens * seconds * prompt_tokens / rows

    @property
    def seconds_per_token(self) -> float:
        """0 before any prompt was computed."""
        return self._product / self._moment if self._moment else 0.0


def _histograms() -> dict[str, Histogram]:
    return {
        "time_to_first_token_seconds": Histogram(SECONDS),
        "inter_token_latency_seconds": Histogram(SECONDS),
        "queue_time_seconds": Histogram(SECONDS),
        "step_time_seconds": Histogram(SECONDS),
        "request_prompt_tokens": Histogram(TOKENS),
        "request_generation_tokens": Histogram(TOKENS),
    }


@dataclass(slots=True)
class Metrics:
    """Live figures, owned by the engine's thread.

    ``counters``: ``prompt_tokens`` and ``cached_tokens`` (a request once, when it is first admitted),
    ``generation_tokens``, ``computed_tokens`` (positions run), ``preemptions``, ``steps``, ``failed_steps``.
    """

    counters: Counter[str] = field(default_factory=Counter)
    finished: Counter[str] = field(default_factory=Counter)
    """Sequences by finish reason."""
    histograms: dict[str, Histogram] = field(default_factory=_histograms)
    prefill: PrefillCost = field(default_factory=PrefillCost)
    saved_prefill_seconds: float = 0.0
    """What the cached tokens of admitted requests would have cost, each at the cost known when it was admitted."""
    admissions: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    """When the last requests were first admitted."""

    def seconds_per_admission(self, now: float) -> float | None:
        """How long a place in the queue takes to come free, as of late; ``None`` before there is anything to go by."""
        if len(self.admissions) < 2:
            return None
        return (now - self.admissions[0]) / len(self.admissions)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot; pages add up to ``total_pages``."""

    free_pages: int
    live_pages: int
    cached_pages: int
    pinned_pages: int
    total_pages: int
    running: int
    waiting: int
    counters: Mapping[str, float]
    finished: Mapping[str, int]
    misses: Mapping[str, int]
    evictions: Mapping[str, int]
    histograms: Mapping[str, Histogram]
    seconds_per_admission: float | None = None
    tiers: tuple[TierStats, ...] = ()
    """Of the tiers below the device, nearest first."""
    far: FarStats | None = None
    """Of the tier behind a network, if there is one."""
