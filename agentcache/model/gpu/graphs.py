"""Capturing a decode step, and for which sizes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

_LARGEST_BATCH = 256
"""Steps of more sequences are long enough to hide the launching of their kernels."""

_FEWEST_SPLITS = 4


class DecodeShape(NamedTuple):
    """What one graph is captured for."""

    batch: int
    splits: int
    """Splits of keys that its longest context may have."""
    shared: bool
    """Whether any split is read for several sequences at once."""


class Recorder(Protocol):
    """Makes a step repeatable."""

    def record(self, body: Callable[[], None]) -> Callable[[], None]:
        """Run ``body`` once; returns what does the same again on the same memory."""
        ...


class Rerun:
    """Repeats by calling: where there are no graphs, or none are wanted."""

    def record(self, body: Callable[[], None]) -> Callable[[], None]:
        body()
        return body


class CudaGraphs:
    """CUDA graphs that share one pool of memory: only one of them runs at a time, and none leaves results there."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, body: Callable[[], None]) -> Callable[[], None]:
        # The first run compiles kernels and makes the libraries allocate what they need, which cannot be captured.
        body()
        graph = torch.cuda.CUDAGraph()
        # Other threads (of the disk tier) may wait for events of theirs meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            body()
        replay: Callable[[], None] = graph.replay
        return replay


def recorder_of(device: torch.device) -> Recorder:
    return CudaGraphs() if device.type == "cuda" else Rerun()


def batch_sizes(most: int) -> list[int]:
    """Sizes from 1 to ``most`` (at most 256): close together where a row more is felt, eight and sixteen apart above."""
    largest = min(most, _LARGEST_BATCH)
    sizes = [1, 2, 4, *range(8, 65, 8), *range(80, _LARGEST_BATCH + 1, 16)]
    return [size for size in sizes if size < largest] + [largest]


def split_counts(most: int) -> list[int]:
    """Doubling up to ``most``, which a context of the longest kind needs; programs of splits that do not exist end at once."""
    counts, count = [], _FEWEST_SPLITS
    while count < most:
        counts.append(count)
        count *= 2
    return [*counts, max(most, 1)]


def at_least(sizes: list[int], wanted: int) -> int | None:
    """The smallest of ``sizes``, which rise, that is no less than ``wanted``."""
    place = bisect_left(sizes, wanted)
    return sizes[place] if place < len(sizes) else None
