"""How long the explorer's walk keeps the engine, on trees of 100,000 pages.  No torch.

python bench/explorer.py
"""

from __future__ import annotations

import gc
import random
import time

from rich.console import Console
from rich.table import Table

from agentcache.cache.hashing import namespace_root
from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.server.cache_tree import Survey

PAGE_SIZE = 16
PAGES = 100_000
SLICE = 1_000
"""As the server asks for (``agentcache.server.ui.tree.SLICE_PAGES``)."""
ROOT = namespace_root("bench")


def filled(prompt_pages: int) -> CacheManager:
    """A tree of prompts of ``prompt_pages`` pages each that share nothing."""
    rng = random.Random(1)
    manager = CacheManager(PAGES + prompt_pages, PAGE_SIZE)
    for _ in range(PAGES // prompt_pages):
        ids = [rng.randrange(50_000) for _ in range(prompt_pages * PAGE_SIZE)]
        lease = manager.acquire(PagedTokens(ids, PAGE_SIZE, ROOT))
        assert isinstance(lease, Lease)
        lease.commit(len(ids))
        lease.release()
    return manager


def walk(manager: CacheManager) -> tuple[int, list[float]]:
    """Runs that were found, and the milliseconds of processor time of each slice."""
    survey, slices = Survey(manager, {ROOT}), []
    while not survey.done:
        began = time.thread_time()
        survey.advance(manager, SLICE)
        slices.append((time.thread_time() - began) * 1e3)
    return len(survey.runs), slices


def main() -> None:
    table = Table(
        "pages a prompt", "runs", "in all, ms", "longest slice, ms", title=f"{PAGES:,} pages, {SLICE:,} a slice"
    )
    for prompt_pages in (6_250, 50, 4):
        manager = filled(prompt_pages)
        gc.collect()
        runs, slices = min((walk(manager) for _ in range(3)), key=lambda found: sum(found[1]))
        table.add_row(f"{prompt_pages:,}", f"{runs:,}", f"{sum(slices):.1f}", f"{max(slices):.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
