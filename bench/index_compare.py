"""Four index designs on the same conversations: lookup, publish, evict and pin, at several sizes."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from agentcache.cache.hashing import namespace_root
from agentcache.cache.tokens import PagedTokens
from bench.index_designs import DESIGNS, AnyIndex
from bench.index_designs.interface import Found

PAGE_SIZE = 16
NEW_PAGES = 16
"""A turn's."""
ROOT = namespace_root("bench")
T = TypeVar("T")


@dataclass(frozen=True)
class Timing:
    """Median microseconds of one operation on an index of ``pages`` pages.

    ``lost``: pages that left the index for each page asked of ``evict``.
    """

    design: str
    pages: int
    prompt_pages: int
    lookup_cold_us: float
    lookup_us: float
    pin_us: float
    publish_us: float
    evict_us: float
    lost: float


@dataclass(frozen=True)
class Conversations:
    """``prompt_pages`` pages each; eight and eight begin with the same quarter."""

    total_pages: int
    prompt_pages: int

    def __iter__(self) -> Iterator[list[int]]:
        rng = random.Random(0)
        shared, head = self.prompt_pages // 4, list[int]()
        pages = number = 0
        while pages < self.total_pages:
            fresh = number % 8 == 0
            if fresh:
                head = _text(rng, shared)
            length = min(self.prompt_pages, self.total_pages - pages + (0 if fresh else shared))
            yield (head + _text(rng, self.prompt_pages - shared))[: length * PAGE_SIZE]
            pages += length - (0 if fresh else shared)
            number += 1


def _text(rng: random.Random, pages: int) -> list[int]:
    return [rng.randrange(50_000) for _ in range(pages * PAGE_SIZE)]


def compare(sizes: list[int], prompt_pages: int) -> Iterator[Timing]:
    """Every design at every size."""
    for size in sizes:
        prompts = list(Conversations(size, min(prompt_pages, size)))
        for design in DESIGNS:
            yield measure(design(PAGE_SIZE), prompts, size)


def measure(index: AnyIndex, prompts: list[list[int]], size: int, repeat: int = 60) -> Timing:
    """Fill ``index`` with ``prompts``, then time a turn that goes on where one of them ended, and evictions."""
    numbers = iter(range(1 << 40))
    for ids in prompts:
        live(index, PagedTokens(ids, PAGE_SIZE, ROOT), numbers)
    assert len(index) == size
    rng = random.Random(1)
    cold, known, pin, publish, evict = (list[float]() for _ in range(5))
    lost = 0
    gc.collect()
    gc.disable()
    for _ in range(repeat):
        ids = rng.choice(prompts)
        longer = ids + _text(rng, NEW_PAGES)
        timed(cold, index.lookup, PagedTokens(ids, PAGE_SIZE, ROOT))
        tokens = PagedTokens(longer, PAGE_SIZE, ROOT)
        tokens.keys(tokens.num_full_pages)
        found = timed(known, index.lookup, tokens)
        timed(pin, index.pin, found)
        fresh = [next(numbers) for _ in range(len(longer) // PAGE_SIZE - len(found.pages))]
        start = time.perf_counter()
        end: Found[object] = index.publish(found, tokens, fresh)
        publish.append(time.perf_counter() - start)
        index.unpin(end)
    for _ in range(min(repeat, size // 4)):
        lost += len(timed(evict, index.evict, 1))
    gc.enable()
    return Timing(
        design=index.name,
        pages=size,
        prompt_pages=len(prompts[0]) // PAGE_SIZE,
        lookup_cold_us=_us(cold),
        lookup_us=_us(known),
        pin_us=_us(pin),
        publish_us=_us(publish),
        evict_us=_us(evict),
        lost=lost / len(evict),
    )


def live(index: AnyIndex, tokens: PagedTokens, numbers: Iterator[int]) -> None:
    """One request from lookup to its end."""
    found = index.lookup(tokens)
    index.pin(found)
    fresh = [next(numbers) for _ in range(tokens.num_full_pages - len(found.pages))]
    index.unpin(index.publish(found, tokens, fresh))


def timed(into: list[float], call: Callable[..., T], argument: object) -> T:
    """The result of one call; its seconds are added to ``into``."""
    started = time.perf_counter()
    result = call(argument)
    into.append(time.perf_counter() - started)
    return result


def _us(seconds: list[float]) -> float:
    return round(statistics.median(seconds) * 1e6, 2)
