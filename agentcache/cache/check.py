"""Everything that must hold of pages, tree and leases, recounted from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentcache.cache.chains import Chain, Needs
    from agentcache.cache.lease import Lease
    from agentcache.cache.manager import CacheManager
    from agentcache.cache.prefix_tree import Node


def check_manager(manager: CacheManager) -> list[str]:
    """What is broken, in sentences; empty when all is well.  O(pages + leases)."""
    faults = manager.pool.check() + manager.tree.check()
    nodes = list(manager.tree.nodes())
    holders = Counter(node.page for node in nodes)
    faults += [f"page {page} is in the tree {count} times" for page, count in holders.items() if count > 1]
    ends: Counter[Node] = Counter()
    for lease in manager.leases():
        ends[lease.node] += 1
        if lease.source is not None:
            ends[lease.source] += 1
        holders.update((*lease.pages[lease.depth :], *lease.twins))
        faults += _check_lease(lease, manager.page_size)
    faults += [
        f"page {page} has {manager.pool.refs(page)} references but {holders[page]} holders"
        for page in range(manager.pool.num_pages)
        if manager.pool.refs(page) != holders[page]
    ]
    pins = Counter(pin.node for pin in manager.pins)
    if manager.tree.num_with_pin > manager.pins.budget:
        faults.append(f"{manager.tree.num_with_pin} pages are pinned, the budget is {manager.pins.budget}")
    heads = (*manager.tree.roots(), *manager.tree.gates())
    chains = {node.chain for node in (*nodes, *heads, *ends)}
    faults += _check_needs(chains, ends, "leases", lambda chain: chain.leases)
    faults += _check_needs(chains, pins, "pins", lambda chain: chain.pins)
    kept = sum(chain.num_with_pin for chain in chains)
    if kept != manager.tree.num_with_pin:
        faults.append(f"{kept} pages have a pin, the counter says {manager.tree.num_with_pin}")
    if manager.quota is not None:
        running = {lease.tokens.root for lease in manager.leases()} | {manager.public_root}
        faults += [
            f"a namespace at rest keeps {size} pages, its quota is {manager.quota}"
            for space, size in manager.tree.sizes.items()
            if size > manager.quota and space not in running
        ]
    faults += manager.lower.check(manager.tree) if manager.lower is not None else []
    faults += ["a page is announced by a lease that was released" for lease in manager.announced() if lease.closed]
    counts = manager.counts()
    if min(counts.free, counts.live, counts.cached, counts.pinned) < 0:
        faults.append(f"negative count: {counts}")
    if counts.free + counts.live + counts.cached + counts.pinned != counts.total:
        faults.append(f"the states do not add up: {counts}")
    return faults


def _check_needs(
    chains: set[Chain], ends: Counter[Node], what: str, needs_of: Callable[[Chain], Needs]
) -> Iterator[str]:
    """What is needed of each chain: by what ends in it, and by the chains that hang from it and are needed themselves."""
    expected: dict[Chain, Counter[int]] = {chain: Counter() for chain in chains}
    for node, count in ends.items():
        expected[node.chain][node.depth] += count
    for chain in chains:
        if needs_of(chain) and chain.parent is not None:
            expected[chain.parent][chain.base] += 1
    for chain, counts in expected.items():
        needs = needs_of(chain)
        if dict(counts) != needs.counts or needs.reach != max(counts, default=chain.base):
            yield f"{what} need {dict(counts)} of a chain, it says {needs.counts} and {needs.reach}"


def _check_lease(lease: Lease, page_size: int) -> Iterator[str]:
    if len(set(lease.pages)) != len(lease.pages):
        yield f"a page table lists a page twice: {lease.pages}"
    if lease.computed > lease.capacity:
        yield f"{lease.computed} tokens are computed in room for {lease.capacity}"
    path = lease.node.path()
    if len(path) != lease.depth or lease.node.depth != lease.depth:
        yield f"a lease published {lease.depth} pages but ends at depth {len(path)}"
    for index, node in enumerate(path):
        if node.tokens != lease.tokens.page_bytes(index):
            yield f"page {index} of a lease holds other tokens than its sequence"
        if node.page != lease.pages[index] and lease.pages[index] not in lease.twins:
            yield f"page {index} of a lease is neither the tree's nor a twin"
