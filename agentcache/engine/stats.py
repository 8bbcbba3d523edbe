"""What the engine counts.  The server turns a snapshot of it into ``/metrics``."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def copy(self) -> Histogram:
        twin = Histogram(self.bounds)
        twin.counts = self.counts.copy()
        twin.sum = self.sum
        return twin


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
    tiers: tuple[TierStats, ...] = ()
    """Of the tiers below the device, nearest first."""
