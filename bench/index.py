"""What the index costs, beside its goals: long walks, a session's turns, evicting, pinning.  No torch.

    python bench/index.py [--json]

Medians over repeated runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from agentcache.cache.hashing import namespace_root
from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.pins import Pin
from agentcache.cache.tokens import PagedTokens

PAGE_SIZE = 16
ROOT = namespace_root("bench")
LONG = 6_250
"""Pages of a transcript of 100,000 tokens."""
TURN = 16
"""New pages of a turn."""


@dataclass(frozen=True)
class Row:
    """Median milliseconds of an operation on a tree of ``pages`` pages; ``goal_ms`` is what it should stay under."""

    operation: str
    pages: int
    median_ms: float
    goal_ms: float | None


def median_ms(call: Callable[[], object], repeat: int = 15, before: Callable[[], None] = lambda: None) -> float:
    """``before`` is called before each run and not timed."""
    times = []
    gc.collect()
    gc.disable()
    for _ in range(repeat):
        before()
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    gc.enable()
    return statistics.median(times) * 1e3


def text(pages: int, rng: random.Random) -> list[int]:
    return [rng.randrange(50_000) for _ in range(pages * PAGE_SIZE)]


def acquire(manager: CacheManager, tokens: PagedTokens) -> Lease:
    lease = manager.acquire(tokens)
    assert isinstance(lease, Lease)
    return lease


def filled(num_pages: int, prompt_pages: int, rng: random.Random) -> tuple[CacheManager, list[list[int]]]:
    """A manager whose tree holds ``num_pages`` pages, as prompts of ``prompt_pages`` pages each, and room for more."""
    manager = CacheManager(num_pages + 2 * prompt_pages + 4096, PAGE_SIZE)
    prompts = []
    for _ in range(max(1, num_pages // prompt_pages)):
        prompts.append(text(prompt_pages, rng))
        lease = acquire(manager, PagedTokens(prompts[-1], PAGE_SIZE, ROOT))
        lease.commit(len(prompts[-1]))
        lease.release()
    return manager, prompts


def walks(num_pages: int, rng: random.Random) -> Iterator[Row]:
    manager, prompts = filled(num_pages, LONG, rng)
    hashed = PagedTokens(prompts[0], PAGE_SIZE, ROOT)
    hashed.keys(hashed.num_full_pages)
    pages = len(manager.tree)
    walk = median_ms(lambda: manager.tree.match(hashed, len(hashed)))
    cold = median_ms(lambda: manager.tree.match(PagedTokens(prompts[0], PAGE_SIZE, ROOT), len(prompts[0])))
    both = median_ms(lambda: acquire(manager, hashed).release())
    yield Row("match of 100,000 tokens, hashed before", pages, walk, None)
    yield Row("match of 100,000 tokens, cold: hash, walk and compare", pages, cold, 4.0)
    yield Row("acquire and release of 100,000 tokens, hashed before", pages, both, None)


def turns(num_pages: int, rng: random.Random, *, pinned: bool) -> Iterator[Row]:
    """A transcript that grows: acquire, hash and publish 16 new pages, release, and perhaps pin it until the next turn."""
    manager, prompts = filled(num_pages, LONG, rng)
    pages = len(manager.tree)
    transcript = array("I", prompts[0])
    known = PagedTokens(transcript, PAGE_SIZE, ROOT)
    pins: list[Pin] = []

    def keep() -> None:
        pin = manager.pin(known, until=1e9)
        assert pin is not None
        pins.append(pin)
        if len(pins) > 1:
            manager.pins.remove(pins.pop(0))

    def turn() -> None:
        nonlocal known
        known = known.continued(transcript)
        lease = acquire(manager, known)
        lease.commit(len(known))
        lease.release()
        if pinned:
            keep()

    turn()

    def grow() -> None:
        transcript.extend(text(TURN, rng))

    state = "the pin moved on" if pinned else "nothing pinned"
    yield Row(f"session turn at 100,000 tokens, 16 new pages, {state}", pages, median_ms(turn, 40, grow), 0.2)


def pins(num_pages: int, prompt_pages: int, rng: random.Random) -> Iterator[Row]:
    """Pin and unpin a whole chain of which nothing is pinned."""
    manager, prompts = filled(num_pages, prompt_pages, rng)
    whole = PagedTokens(prompts[0], PAGE_SIZE, ROOT)
    node = manager.tree.match(whole, len(whole)).node

    def pin_and_unpin() -> None:
        for _ in range(100):
            manager.tree.pin(node)
            manager.tree.unpin(node, lapsed=False)

    each = median_ms(pin_and_unpin) / 200
    yield Row(f"pin or unpin a chain of {prompt_pages:,} pages", len(manager.tree), each, 0.005)


def evictions(num_pages: int, rng: random.Random) -> Iterator[Row]:
    manager, _ = filled(num_pages, min(64, num_pages), rng)
    count = min(50, num_pages // 8)

    def evict() -> None:
        for _ in range(count):
            manager.evict("bench")

    yield Row("evict one page", num_pages, median_ms(evict, repeat=6) / count, 0.005)


def rows() -> Iterator[Row]:
    rng = random.Random(0)
    for num_pages in (LONG, 100_000):
        yield from walks(num_pages, rng)
    for pinned in (False, True):
        yield from turns(100_000, rng, pinned=pinned)
    for num_pages, prompt_pages in ((192, 64), (100_000, LONG)):
        yield from pins(num_pages, prompt_pages, rng)
    for num_pages in (192, 2_048, 20_032, 200_000):
        yield from evictions(num_pages, rng)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What the index costs, beside its goals.")
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    found = rows()
    if parser.parse_args(argv).json:
        print(json.dumps([asdict(row) for row in found]))
        return
    table = Table(title=f"prefix index, {PAGE_SIZE} tokens a page, medians")
    table.add_column("operation")
    for name in ("pages in the tree", "median", "goal"):
        table.add_column(name, justify="right")
    for row in found:
        style = "yellow" if row.goal_ms is not None and row.median_ms > row.goal_ms else None
        goal = "" if row.goal_ms is None else f"< {_time(row.goal_ms)}"
        table.add_row(row.operation, f"{row.pages:,}", _time(row.median_ms), goal, style=style)
    Console().print(table)


def _time(ms: float) -> str:
    return f"{ms:.3f} ms" if ms >= 0.1 else f"{ms * 1e3:.2f} µs"


if __name__ == "__main__":
    main()
