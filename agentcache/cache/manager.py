"""The one owner of pages and tree: leases are taken here and end here, and nothing else frees a page.

A page is in exactly one state:

=======  ============================================================================
free     nobody holds it
live     a lease needs it: as its own, or as part of the path that the lease ends at
cached   only the tree has it; evicted when room is needed
=======  ============================================================================
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from agentcache.cache.check import check_manager
from agentcache.cache.events import EventLog, Forked, Hit, Missed, PageCopied, PageEvicted, PageStored
from agentcache.cache.explain import Miss, explain
from agentcache.cache.pages import PageCopy, PagePool
from agentcache.cache.prefix_tree import Match, Node, PrefixTree
from agentcache.cache.tokens import PagedTokens
from agentcache.errors import InvariantError
from agentcache.faults import Faults


class Refusal(enum.Enum):
    """Why no lease was given now; asking again later can succeed."""

    NO_ROOM = "too few pages are free or can be evicted"
    IN_FLIGHT = "a running request is computing the very page that this prompt needs next"


@dataclass(frozen=True, slots=True)
class PageCounts:
    """How many pages are in each state; they add up to ``total``."""

    free: int
    live: int
    cached: int
    pinned: int
    total: int


class Lease:
    """The right of one sequence to its pages.

    ::

        page table:   | shared | shared | own, full | own, tail |
        positions:    0 ............................ computed ... capacity
                      [ keys and values are valid   )[  reserved )
        published:    | --- depth pages ----------- |             the tree knows these; ``node`` is the last of them

    The page table only grows; a page in it changes only by copy on write, before anything is written to it.
    Verbs: ``extend`` before a step, ``commit`` after it, ``fork``, ``release`` (idempotent).
    """

    __slots__ = (
        "_copies",
        "_manager",
        "cached_tokens",
        "closed",
        "computed",
        "depth",
        "miss",
        "node",
        "pages",
        "publishing",
        "source",
        "tokens",
        "twins",
    )

    def __init__(self, manager: CacheManager, tokens: PagedTokens, node: Node, pages: list[int]) -> None:
        self._manager = manager
        self._copies: list[PageCopy] = []
        self.source: Node | None = None
        self.twins: list[int] = []
        self.tokens = tokens
        self.node = node
        self.depth = len(pages)
        self.pages = pages
        self.computed = 0
        self.cached_tokens = 0
        self.miss: Miss | None = None
        self.publishing = True
        self.closed = False

    @property
    def capacity(self) -> int:
        """How many tokens the page table has room for."""
        return len(self.pages) * self._manager.page_size

    def extend(self, upto: int) -> bool:
        """Make positions ``[computed, upto)`` writable: reserve pages, copy a shared tail.  All of it, or nothing.

        Returns:
            Whether there was room.
        """
        return self._manager._extend(self, upto)

    def take_copies(self) -> list[PageCopy]:
        """Copies to make before the next forward pass; each is given once."""
        copies, self._copies = self._copies, []
        return copies

    def commit(self, computed: int, output_from: int | None = None) -> None:
        """Positions below ``computed`` now have keys and values; publish the pages that became full.

        Args:
            computed: never less than before.
            output_from: pages that reach beyond this position hold generated tokens (they are evicted earlier).
        """
        self._manager._commit(self, computed, output_from)

    def fork(self, tokens: PagedTokens) -> Lease:
        """A second lease on the same pages for a sequence that begins with the same tokens.

        The partly filled tail is shared until one of the two writes to it.
        """
        return self._manager._fork(self, tokens)

    def release(self) -> None:
        """Give everything back: own pages become free, published ones stay as cache."""
        self._manager._release(self)


class CacheManager:
    """Pool, tree and leases.

    Args:
        num_pages: pages in the pool.
        page_size: tokens a page.
        enabled: ``False`` never matches and never publishes.
        events: where what happens is told.
        faults: where tests make allocation fail.
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        *,
        enabled: bool = True,
        events: EventLog | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.page_size = page_size
        self.enabled = enabled
        self.faults = faults or Faults()
        self.events = events or EventLog()
        self.pool = PagePool(num_pages)
        self.tree = PrefixTree(page_size, remember=max(1024, 2 * num_pages))
        self._leases: set[Lease] = set()
        self._pending: dict[bytes, Lease] = {}

    # -- room -----------------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Pages that are free or can be evicted now."""
        return self.pool.num_free + len(self.tree) - self.tree.num_live

    def counts(self) -> PageCounts:
        cached = len(self.tree) - self.tree.num_live
        free = self.pool.num_free
        total = self.pool.num_pages
        return PageCounts(free=free, live=total - free - cached, cached=cached, pinned=0, total=total)

    @property
    def num_leases(self) -> int:
        return len(self._leases)

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def _allocate(self, reason: str = "room") -> int:
        self.faults.trip("alloc")
        if not self.pool.num_free and not self.evict(reason):
            raise InvariantError("a page was promised, but none is free or can be evicted")
        return self.pool.allocate()

    def evict(self, reason: str) -> bool:
        """Free the one page that is least worth keeping; ``False`` when every page is held."""
        used_until = self.tree.clock
        node = self.tree.evict()
        if node is None:
            return False
        self.pool.drop(node.page)
        self.events.add(PageEvicted(node.key, node.page, reason, used_until - node.used))
        return True

    def flush(self) -> int:
        """Evict every page that nobody holds; how many there were."""
        count = 0
        while self.evict("flush"):
            count += 1
        return count

    # -- leases ---------------------------------------------------------------------------------------------------

    def acquire(
        self, tokens: PagedTokens, *, reuse: bool = True, spare: int = 0, first: bool = True
    ) -> Lease | Refusal:
        """Match ``tokens``, hold what was found and reserve room for all of them, in one step.

        Args:
            tokens: the whole sequence so far (prompt, or prompt and output after a preemption); at least one token.
            reuse: ``False`` computes every position (the pages are still published).
            spare: pages that must stay available after the reservation.
            first: whether this is the request's first admission (later ones are not counted as hits or misses again).
        """
        total = len(tokens)
        reuse = reuse and self.enabled
        match = self.tree.match(tokens, total) if reuse else Match(self.tree.match(tokens, 0).node, [])
        if reuse and self._in_flight(tokens, match):
            return Refusal.IN_FLIGHT
        size = self.page_size
        # At least one token is left to compute: its row is what the next token is drawn from.
        match.partial_tokens = min(match.partial_tokens, max(0, total - 1 - len(match.pages) * size))
        newly_held = _count_unheld(match.node)
        need = self.pages_for(total) - len(match.pages)
        room = self.available - newly_held - spare
        if need > room:
            return Refusal.NO_ROOM
        lease = Lease(self, tokens, match.node, match.pages)
        lease.miss = self._why_not_further(tokens, match, reuse=reuse)
        self.tree.hold(match.node)
        if match.pages:
            self.tree.hit(match.node)
        self._leases.add(lease)
        lease.computed = min(len(match.pages) * size, total)
        source = match.partial
        if source is not None and match.partial_tokens > 0 and need + (source.holders == 0) <= room:
            # The source stays held until the copy has been made, so that it cannot be evicted and overwritten before.
            self.tree.hold(source)
            self.tree.hit(source)
            lease.source = source
        try:
            for _ in range(need):
                lease.pages.append(self._allocate())
        except BaseException:
            self._release(lease)
            raise
        if lease.source is not None:
            self._copy(lease, lease.source.page, lease.pages[lease.depth], match.partial_tokens)
            lease.computed += match.partial_tokens
        lease.cached_tokens = min(lease.computed, total - 1)
        if first:
            self.events.add(Hit(lease.cached_tokens, total))
            if lease.miss is not None:
                self.events.add(Missed(lease.miss.code, lease.miss.at_token))
        self._announce(lease)
        return lease

    def _copy(self, lease: Lease, source: int, target: int, tokens: int) -> None:
        lease._copies.append(PageCopy(source, target, tokens))
        self.events.add(PageCopied(source, target, tokens))

    def _extend(self, lease: Lease, upto: int) -> bool:
        self._must_be_open(lease)
        size = self.page_size
        tail = lease.computed // size
        # Only the page that the next token falls into can be shared and partly filled.
        shared = tail < len(lease.pages) and tail >= lease.depth and self.pool.refs(lease.pages[tail]) > 1
        need = max(0, self.pages_for(upto) - len(lease.pages))
        if need + shared > self.available:
            return False
        if shared:
            own, old = self._allocate(), lease.pages[tail]
            lease.pages[tail] = own
            if filled := lease.computed % size:
                self._copy(lease, old, own, filled)
            self.pool.drop(old)
        for _ in range(need):
            lease.pages.append(self._allocate())
        return True

    def _commit(self, lease: Lease, computed: int, output_from: int | None) -> None:
        self._must_be_open(lease)
        if computed < lease.computed or computed > lease.capacity:
            raise InvariantError(
                f"cannot commit {computed} tokens: {lease.computed} are computed, {lease.capacity} fit"
            )
        lease.computed = computed
        self._drop_source(lease)
        self._withdraw(lease)
        full = computed // self.page_size
        while self.enabled and lease.publishing and lease.depth < full:
            self._publish(lease, output_from)
        self._announce(lease)

    def _publish(self, lease: Lease, output_from: int | None) -> None:
        index = lease.depth
        page = lease.pages[index]
        key = lease.tokens.key(index)
        output = output_from is not None and (index + 1) * self.page_size > output_from
        known = self.tree.get(key)
        node = self.tree.insert(lease.node, key, lease.tokens.page_bytes(index), page, output=output)
        if node is None:  # another page has this key: everything from here on stays the sequence's own
            lease.publishing = False
            return
        if known is None:
            self.events.add(PageStored(key, lease.node.key, page))
        elif node.page == page:
            self.pool.drop(page)  # a fork of this sequence published the page that both held
        else:
            # Someone computed the same page at the same time.  The page table is append-only, so the twin stays in use
            # and is freed with the lease.
            lease.twins.append(page)
        before = lease.node
        self.tree.hold(node)
        self.tree.release(before)
        lease.node = node
        lease.depth = index + 1

    def _fork(self, lease: Lease, tokens: PagedTokens) -> Lease:
        self._must_be_open(lease)
        if lease._copies:
            raise InvariantError("a lease cannot be forked before its copies were made")
        twin = Lease(self, tokens, lease.node, lease.pages.copy())
        twin.depth = lease.depth
        twin.computed = lease.computed
        twin.cached_tokens = lease.cached_tokens
        twin.publishing = lease.publishing
        twin.twins = lease.twins.copy()
        self.tree.hold(lease.node)
        # Room that was reserved but not written is the parent's alone.
        used = self.pages_for(lease.computed)
        del twin.pages[used:]
        for page in (*twin.pages[twin.depth :], *twin.twins):
            self.pool.share(page)
        self._leases.add(twin)
        self.events.add(Forked(used))
        return twin

    def _release(self, lease: Lease) -> None:
        if lease.closed:
            return
        lease.closed = True
        self._leases.discard(lease)
        self._withdraw(lease)
        self._drop_source(lease)
        # Last page first, so that the pages of a beginning are reused last.
        for page in (*reversed(lease.pages[lease.depth :]), *lease.twins):
            self.pool.drop(page)
        self.tree.release(lease.node)

    def _drop_source(self, lease: Lease) -> None:
        if lease.source is not None:
            self.tree.release(lease.source)
            lease.source = None

    def _must_be_open(self, lease: Lease) -> None:
        if lease.closed:
            raise InvariantError("the lease was released")

    # -- pages being computed -------------------------------------------------------------------------------------

    def _announce(self, lease: Lease) -> None:
        """Tell that this lease computes its next page now, so that others with the same beginning wait for it."""
        if not (self.enabled and lease.publishing) or (lease.depth + 1) * self.page_size > len(lease.tokens):
            return
        self._pending.setdefault(lease.tokens.key(lease.depth), lease)

    def _withdraw(self, lease: Lease) -> None:
        if lease.depth < lease.tokens.num_full_pages:
            key = lease.tokens.key(lease.depth)
            if self._pending.get(key) is lease:
                del self._pending[key]

    def _in_flight(self, tokens: PagedTokens, match: Match) -> bool:
        depth = len(match.pages)
        return depth < tokens.num_full_pages and tokens.key(depth) in self._pending

    def _why_not_further(self, tokens: PagedTokens, match: Match, *, reuse: bool) -> Miss | None:
        if not self.enabled:
            return Miss("disabled", 0, "the prefix cache is off")
        if not reuse:
            return Miss("disabled", 0, "the request needs every position computed")
        return explain(self.tree, tokens, match)

    def check(self) -> list[str]:
        """What is broken, in sentences; empty when all is well.  O(pages + leases)."""
        return check_manager(self)

    def leases(self) -> Iterator[Lease]:
        return iter(self._leases)

    def announced(self) -> Iterator[Lease]:
        """Leases that others wait for."""
        return iter(self._pending.values())


def _count_unheld(node: Node) -> int:
    """How many nodes a hold on ``node`` would take out of what can be evicted."""
    count = 0
    at: Node | None = node
    while at is not None and at.parent is not None and not at.holders:
        count += 1
        at = at.parent
    return count
