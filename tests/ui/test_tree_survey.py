"""The walk that the explorer draws, beside a count of every node."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from agentcache.cache.hashing import namespace_root
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.server.cache_tree import Run, Survey, runs_of

SIZE = 4
ROOT, OTHER = namespace_root("survey"), namespace_root("another")


def grown(seed: int) -> tuple[CacheManager, list]:
    """A random tree with leases and pins in it, some of whose branches were evicted."""
    rng = random.Random(seed)
    manager = CacheManager(160, SIZE)
    texts = [[rng.randrange(3) for _ in range(rng.randrange(1, 60))]]
    leases = []
    for step in range(60):
        base = rng.choice(texts)
        text = base[: rng.randrange(len(base) + 1)] + [rng.randrange(3) for _ in range(rng.randrange(1, 30))]
        texts.append(text)
        tokens = PagedTokens(text, SIZE, ROOT if step % 5 else OTHER)
        lease = manager.acquire(tokens)
        lease.commit(len(text))
        if step % 9 == 0 and len(leases) < 3:
            leases.append(lease)
        else:
            lease.release()
        if step % 7 == 0:
            manager.pin(tokens, until=1e9)
        if step % 11 == 0:
            manager.evict("test")
    return manager, leases


def states(manager: CacheManager) -> Counter[str]:
    nodes = [node for node in manager.tree.nodes() if node.chain.space == ROOT]
    return Counter("live" if node.held else "pinned" if node.pinned else "cached" for node in nodes)


def summed(runs: list[Run]) -> Counter[str]:
    live, pinned = sum(run.live for run in runs), sum(run.pinned for run in runs)
    return +Counter(live=live, pinned=pinned, cached=sum(run.pages for run in runs) - live - pinned)


def figures(run: Run) -> tuple:
    above = None if run.parent is None else run.parent.number
    return (
        run.number,
        above,
        run.start,
        run.keys,
        run.head,
        run.last,
        run.tokens,
        run.live,
        run.pinned,
        run.hits,
        run.used,
    )


@pytest.mark.parametrize("seed", range(20))
def test_its_sums_are_those_of_all_pages(seed):
    manager, _ = grown(seed)
    runs, truncated = runs_of(manager, {ROOT})
    nodes = [node for node in manager.tree.nodes() if node.chain.space == ROOT]
    assert not truncated and nodes
    assert sorted(key for run in runs for key in run.keys) == sorted(node.key for node in nodes)
    assert summed(runs) == states(manager)
    assert sum(run.hits for run in runs) == sum(node.hits for node in nodes)
    assert sum(run.tokens for run in runs) == sum(len(node.tokens) // 4 for node in nodes)
    for run in runs:
        assert all(len(manager.tree.get(key).children) == 1 for key in run.keys[:-1])
        held = [manager.tree.get(key).held for key in run.keys]
        assert held == sorted(held, reverse=True) and sum(held) == run.live


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("pages", [1, 2, 7])
def test_slices_see_what_one_walk_sees(seed, pages):
    manager, _ = grown(seed)
    survey, whole = Survey(manager, {ROOT}), Survey(manager, {ROOT})
    whole.advance(manager, 10**9)
    while not survey.done:
        before = survey.pages
        survey.advance(manager, pages)
        assert survey.pages - before <= pages
    assert list(map(figures, survey.runs)) == list(map(figures, whole.runs))


def test_what_leaves_between_two_slices_is_not_walked_into():
    manager, leases = grown(3)
    survey = Survey(manager, {ROOT})
    survey.advance(manager, 5)
    for lease in leases:
        lease.release()
    for pin in list(manager.pins):
        manager.unpin(pin)
    manager.flush()
    assert survey.advance(manager, 10**9)
    assert survey.pages == 5 and len(manager.tree) == 0


def test_it_changes_nothing():
    manager, _ = grown(1)
    before = manager.tree.clock, len(manager.tree), manager.counts()
    runs_of(manager, {ROOT, OTHER})
    assert (manager.tree.clock, len(manager.tree), manager.counts()) == before and not manager.check()
