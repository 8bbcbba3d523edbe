"""What the index costs: walking a long prompt, growing it, evicting, at several sizes.  No torch.

    python bench/index.py

Prints medians over repeated runs; the goals are a walk of 100,000 tokens through a tree of 100,000 pages under 3 ms, and
an eviction whose cost does not depend on the number of pages.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from agentcache.cache.hashing import namespace_root
from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens

PAGE_SIZE = 16
ROOT = namespace_root("bench")


def median_ms(call: Callable[[], object], repeat: int = 15) -> float:
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def filled(num_pages: int, prompt_pages: int, rng: random.Random) -> tuple[CacheManager, list[list[int]]]:
    """A manager whose tree holds ``num_pages`` pages, as prompts of ``prompt_pages`` pages each."""
    manager = CacheManager(num_pages + prompt_pages + 16, PAGE_SIZE)
    prompts = []
    for _ in range(max(1, num_pages // prompt_pages)):
        ids = [rng.randrange(50_000) for _ in range(prompt_pages * PAGE_SIZE)]
        lease = manager.acquire(PagedTokens(ids, PAGE_SIZE, ROOT))
        assert isinstance(lease, Lease)
        lease.commit(len(ids))
        lease.release()
        prompts.append(ids)
    return manager, prompts


def walks(table: Table, num_pages: int, rng: random.Random) -> None:
    manager, prompts = filled(num_pages, 6250, rng)
    hashed = PagedTokens(prompts[0], PAGE_SIZE, ROOT)
    hashed.keys(hashed.num_full_pages)
    walk = median_ms(lambda: manager.tree.match(hashed, len(hashed)))
    cold = median_ms(lambda: manager.tree.match(PagedTokens(prompts[0], PAGE_SIZE, ROOT), len(prompts[0])))

    def lease_and_release() -> None:
        lease = manager.acquire(hashed)
        assert isinstance(lease, Lease)
        lease.release()

    table.add_row("walk of 100,000 tokens, keys known", f"{len(manager.tree):,}", f"{walk:.3f} ms")
    table.add_row("the same with hashing the tokens", f"{len(manager.tree):,}", f"{cold:.3f} ms")
    table.add_row(
        "acquire and release of that prompt", f"{len(manager.tree):,}", f"{median_ms(lease_and_release):.3f} ms"
    )


def evictions(table: Table, num_pages: int, rng: random.Random) -> None:
    manager, _ = filled(num_pages, min(64, num_pages), rng)
    count = min(50, num_pages // 4)
    times = []
    for _ in range(4):
        started = time.perf_counter()
        for _ in range(count):
            manager.evict("bench")
        times.append((time.perf_counter() - started) / count)
    table.add_row("evict one page", f"{num_pages:,}", f"{statistics.median(times) * 1e6:.2f} µs")


def main() -> None:
    rng = random.Random(0)
    table = Table("operation", "pages in the tree", "median", title=f"prefix index, {PAGE_SIZE} tokens a page")
    for num_pages in (6_250, 100_000):
        walks(table, num_pages, rng)
    for num_pages in (200, 2_000, 20_000, 200_000):
        evictions(table, num_pages, rng)
    Console().print(table)


if __name__ == "__main__":
    main()
