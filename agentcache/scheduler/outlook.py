"""What the scheduler asks the cache without changing anything in it.  All of it is O(log pages) or O(branches)."""

from __future__ import annotations

from bisect import bisect_left

from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.scheduler.policy import Waiter


def room(manager: CacheManager) -> int:
    """Pages that a running sequence could still take: free, evictable, or pinned (pins give way)."""
    return manager.available + manager.tree.num_pinned


def pages_to_grow(manager: CacheManager, lease: Lease, upto: int) -> int:
    """New pages that ``lease.extend(upto)`` takes: those behind the table, and a copy of a tail that others hold too."""
    pages, size = lease.pages, manager.page_size
    if upto > len(pages) * size:
        return -(-upto // size) - len(pages)
    tail = lease.computed // size
    return int(lease.depth <= tail < len(pages) and manager.pool.refs(pages[tail]) > 1)


def look_up(manager: CacheManager, waiter: Waiter, announced: set[bytes]) -> None:
    """Refresh what ``waiter`` says of the cache.

    Only leaves leave the tree, so if a page is there, all before it are: the end of the match is found by bisection over
    the keys, without comparing tokens.  Equal keys of unequal pages make the figure wrong, which costs a place in the
    order and nothing else: ``manager.acquire`` compares.

    Args:
        announced: keys of pages that running sequences compute now.
    """
    tokens = waiter.sequence.tokens
    known = _cached_pages(manager, tokens, waiter.pages)
    if manager.lower is not None and (known != waiter.pages or not waiter.below):
        waiter.below = manager.lower.pages_at_hand(tokens, known)
    waiter.pages = known
    waiter.in_flight = known < tokens.num_full_pages and tokens.key(known) in announced
    waiter.uncached = max(1, waiter.total - (known + waiter.below) * manager.page_size)


def keep_found(manager: CacheManager, waiter: Waiter) -> None:
    """What a request that waits for room has found should not be the next to go."""
    node = manager.tree.get(waiter.sequence.tokens.key(waiter.pages - 1)) if waiter.pages else None
    if node is not None:
        manager.tree.touch(node)


def announced_keys(manager: CacheManager) -> set[bytes]:
    """Keys of pages that are being computed, which others with the same beginning wait for."""
    return {lease.tokens.key(lease.depth) for lease in manager.announced()}


def _cached_pages(manager: CacheManager, tokens: PagedTokens, guess: int) -> int:
    """Whole pages at the beginning of ``tokens`` that the tree holds; quick when ``guess`` is right."""
    count = tokens.num_full_pages
    keys = tokens.keys(count)
    get = manager.tree.get
    if (not guess or get(keys[guess - 1]) is not None) and (guess == count or get(keys[guess]) is None):
        return guess
    return bisect_left(range(count), True, key=lambda page: get(keys[page]) is None)


def private_part(manager: CacheManager, lease: Lease) -> tuple[int, int]:
    """Pages that would come free if ``lease`` ended, and the computed tokens that they hold.

    ::

        page table:   | shared | shared | published, private | own, full | own, tail | reserved |
                                        [ ------ come free ------------------------------------ )
                                        [ ---------- tokens lost ------------ computed )
    """
    own = len(lease.pages) - lease.depth
    shared = sum(manager.pool.refs(page) > 1 for page in lease.pages[lease.depth :])
    private = _only_kept_by_one(lease)
    lost = lease.computed - (lease.depth - private + shared) * manager.page_size
    return private + own - shared + len(lease.twins), max(0, lost)


def _only_kept_by_one(lease: Lease) -> int:
    """Published pages at the end of the lease's path that no other lease needs."""
    kept = 0
    depth = lease.node.depth
    chain = lease.node.chain
    while True:
        needs = chain.leases.counts
        if needs[depth] > 1:
            return kept
        others = max((other for other in needs if other != depth), default=chain.base)
        kept += max(0, depth - others)
        if others > chain.base or len(needs) > 1 or chain.parent is None:
            return kept
        depth, chain = chain.base, chain.parent
