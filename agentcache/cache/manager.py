"""The one owner of pages and tree: leases are taken here and end here, and nothing else frees a page.

A page is in exactly one state:

=======  ============================================================================
free     nobody holds it
live     a lease needs it: as its own, or as part of the path that the lease ends at
pinned   only the tree has it, and a pin keeps it
cached   only the tree has it; evicted when room is needed
=======  ============================================================================
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from agentcache.cache.check import check_manager
from agentcache.cache.events import EventLog, Forked, Hit, Missed, PageCopied, PageEvicted, PageLoaded
from agentcache.cache.explain import Miss, explain
from agentcache.cache.fetching import Errand, FarTier
from agentcache.cache.hashing import pack_tokens
from agentcache.cache.in_flight import InFlight, fills_much_of, longest_open_page
from agentcache.cache.lease import Lease
from agentcache.cache.lower import FoundPage, LowerTiers
from agentcache.cache.pages import PageCopy, PageLoad, PagePool
from agentcache.cache.pins import Pin, Pins
from agentcache.cache.prefix_tree import Match, Node, PrefixTree, common_tokens
from agentcache.cache.publishing import Publisher
from agentcache.cache.residency import DEVICE, AllLeft, Residency
from agentcache.cache.tokens import PagedTokens, Trail
from agentcache.errors import InvariantError
from agentcache.faults import Faults


class Refusal(enum.Enum):
    """Why no lease was given now; asking again later can succeed."""

    NO_ROOM = "too few pages are free or can be evicted"
    IN_FLIGHT = "a running request is computing the very page that this prompt needs next"
    FETCHING = "pages of this prompt are on their way from a shared store"


@dataclass(frozen=True, slots=True)
class PageCounts:
    """How many pages are in each state; they add up to ``total``."""

    free: int
    live: int
    cached: int
    pinned: int
    total: int


class CacheManager:
    """Pool, tree and leases.

    Args:
        num_pages: pages in the pool.
        page_size: tokens a page.
        enabled: ``False`` never matches and never publishes.
        tails: keep the partly filled last page of a sequence, and copy from pages that are equal only at their beginning.
        pin_budget: how many pages pins may keep; half the pool by default.
        quota: how many pages of one namespace may stay as cache; what runs may use more.
        public_root: the namespace that every other one shares; no quota applies to it.
        lower: tiers below the device, and what moves pages between them and it.
        events: where what happens is told.
        faults: where tests make allocation fail.
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        *,
        enabled: bool = True,
        tails: bool = True,
        pin_budget: int | None = None,
        quota: int | None = None,
        public_root: bytes | None = None,
        lower: LowerTiers | None = None,
        events: EventLog | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self.enabled = enabled
        self.faults = faults or Faults()
        self.events = events or EventLog()
        self.tails = tails
        self.lower = lower
        self.quota = quota
        self.public_root = public_root
        self._residency: Residency | None = None
        self._pin_budget = num_pages // 2 if pin_budget is None else pin_budget
        self.reset()

    def reset(self) -> None:
        """Forget everything: every page is free, every lease and pin is void.  Only while nothing runs."""
        self.pool = PagePool(self.num_pages)
        self.tree = PrefixTree(self.page_size, max(1024, 2 * self.num_pages), by_space=self.quota is not None)
        self._leases: dict[Lease, None] = {}
        self.pins = Pins(self.tree, self._pin_budget, self.events)
        self._in_flight = InFlight()
        self._publisher = Publisher(self.tree, self.pool, self.events)
        if self._residency is not None:
            self.tree.listener = self._residency
            self._residency(AllLeft(DEVICE))

    def watched(self) -> Residency:
        """Who is told of pages that come and go (``residency.watch_residency``); until it is first asked for, nobody."""
        if self._residency is None:
            self._residency = self.tree.listener = Residency()
            for tier in self.lower.tiers if self.lower is not None else ():
                tier.listener = self._residency
        return self._residency

    @property
    def far(self) -> FarTier | None:
        """The tier that answers later, if there is one."""
        return self.lower.far if self.lower is not None else None

    # -- room -----------------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Pages that are free or can be evicted now."""
        return self.pool.num_free + self._num_cached

    @property
    def _num_cached(self) -> int:
        return len(self.tree) - self.tree.num_live - self.tree.num_pinned

    def counts(self) -> PageCounts:
        cached, pinned = self._num_cached, self.tree.num_pinned
        free, total = self.pool.num_free, self.pool.num_pages
        return PageCounts(free=free, live=total - free - cached - pinned, cached=cached, pinned=pinned, total=total)

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

    def evict(self, reason: str, space: bytes | None = None) -> bool:
        """Free the one page (of a namespace) that is least worth keeping; ``False`` when every page is held."""
        used_until = self.tree.clock
        node = self.tree.evict(space)
        if node is None:
            return False
        if self.lower is not None:
            self.lower.store(node)
        self.pool.drop(node.page)
        self.events.add(PageEvicted(node.key, node.page, reason, used_until - node.used))
        return True

    def flush(self) -> int:
        """Evict every page that nobody holds or pins; how many there were."""
        flushed = 0
        while self.evict("flush"):
            flushed += 1
        self.tree.flushed_at = self.tree.clock
        return flushed

    def store_some(self) -> bool:
        """Store a few pages of prompts that were used again; whether any could be.  Between steps."""
        return self.lower is not None and self.lower.store_some(self.tree)

    # -- leases ---------------------------------------------------------------------------------------------------

    def acquire(
        self,
        tokens: PagedTokens,
        *,
        reuse: bool = True,
        spare: int = 0,
        first: bool = True,
        errand: Errand | None = None,
    ) -> Lease | Refusal:
        """Match ``tokens``, hold what was found and reserve room for all of them, in one step.

        Args:
            tokens: the whole sequence so far (prompt, or prompt and output after a preemption); at least one token.
            reuse: ``False`` computes every position (the pages are still published).
            spare: pages that must stay available after the reservation.
            first: whether this is the request's first admission (later ones are not counted as hits or misses again).
            errand: what this admission asks of a tier that answers later; ``None`` asks nothing of it.
        """
        lease = self._acquire(tokens, errand, reuse=reuse and self.enabled, spare=spare, first=first)
        self._keep_quotas()
        return lease

    def _acquire(
        self, tokens: PagedTokens, errand: Errand | None, *, reuse: bool, spare: int, first: bool
    ) -> Lease | Refusal:
        total = len(tokens)
        match = self.tree.match(tokens, total) if reuse else Match(self.tree.match(tokens, 0).node, [])
        if reuse and self.tails:
            self._look_at_open_pages(tokens, match)
        if reuse and self._in_flight.awaited(tokens, match):
            return Refusal.IN_FLIGHT
        if reuse and self.tails and fills_much_of(self._leases, tokens, match):
            return Refusal.IN_FLIGHT
        # At least one token is left to compute: its row is what the next token is drawn from.
        most = max(0, total - 1 - len(match.pages) * self.page_size) if self.tails else 0
        match.partial_tokens = min(match.partial_tokens, most)
        need = self.pages_for(total) - len(match.pages)
        room = self._room_for(need, match, spare)
        if need > room:
            self._keep_found(match)
            return Refusal.NO_ROOM
        if (
            reuse
            and self.lower is not None
            and errand is not None
            and errand.waits(self.lower, tokens, len(match.pages))
        ):
            self._keep_found(match)
            return Refusal.FETCHING
        found = self.lower.find(tokens, len(match.pages)) if reuse and self.lower is not None else []
        if found:
            match.partial = None  # whole pages from below reach further than a part of one
        miss = self._why_not_further(tokens, match, len(found), reuse=reuse)
        lease = self._take(tokens, match, found, need, room)
        if reuse:
            self._load_tail(lease, len(found))
        lease.miss = miss
        lease.cached_tokens = min(lease.computed, total - 1)
        if found and lease.computed == total:  # the last token is computed anew, so it is from nowhere
            lease.tier_tokens[found[-1].tier] -= 1
        if first:
            self.events.add(Hit(lease.cached_tokens, total))
            if lease.miss is not None:
                self.events.add(Missed(lease.miss.code, lease.miss.at_token))
        self._announce(lease)
        return lease

    def _keep_found(self, match: Match) -> None:
        """It will be tried again: until then, what it found should not be the next to go."""
        self.tree.touch(match.partial if match.partial_tokens and isinstance(match.partial, Node) else match.node)

    def _look_at_open_pages(self, tokens: PagedTokens, match: Match) -> None:
        page = longest_open_page(self._leases, tokens, match)
        if page is not None:
            start = len(match.pages) * self.page_size
            rest = pack_tokens(tokens[start : start + self.page_size])
            match.partial, match.partial_tokens = page, common_tokens(page.tokens, rest)

    def _take(self, tokens: PagedTokens, match: Match, found: list[FoundPage], need: int, room: int) -> Lease:
        """Hold what was matched, take ``need`` of the ``room`` pages there are, and plan what fills them."""
        lease = Lease(self, tokens, match.node, match.pages)
        self.tree.hold(match.node)
        if match.pages:
            self.tree.hit(match.node)
            if self.lower is not None:
                self.lower.store_behind(match.node, self.tree)
        self._leases[lease] = None
        lease.computed = (lease.depth + len(found)) * self.page_size
        source = match.partial if match.partial_tokens else None
        if isinstance(source, Node):
            if need + (not source.held and not source.pinned) > room:
                source = None
            else:
                # It stays held until the copy has been made, so that it cannot be evicted and overwritten before.
                self.tree.hold(source)
                self.tree.hit(source)
                lease.source = source
        try:
            for _ in range(need):
                lease.pages.append(self._allocate())
        except BaseException:
            self._release(lease)
            raise
        # Neighbours in the table are neighbours in memory where that can be had: attention reads those faster.
        lease.pages[lease.depth :] = sorted(lease.pages[lease.depth :])
        self._plan_loads(lease, found)
        if source is not None:
            # Copies are made in the order in which they were planned, so a page that is still being filled by a sequence
            # that is preempted meanwhile is read before anybody writes to it.
            self._copy(lease, source.page, lease.pages[lease.depth], match.partial_tokens)
            lease.computed += match.partial_tokens
        return lease

    def _plan_loads(self, lease: Lease, found: list[FoundPage]) -> None:
        """Have the pages behind the match filled from below; they are published when the step has been made."""
        for offset, entry in enumerate(found):
            self._load(lease, lease.depth + offset, entry, self.page_size)
            lease.cached_pages += 1

    def _load_tail(self, lease: Lease, found: int) -> None:
        """Fill the page behind all others from host memory, if the sequence was swapped out with it partly filled."""
        page, end = lease.depth + found, len(lease.tokens) - 1
        start = page * self.page_size
        if self.lower is None or not self.lower.swap_pages or page != end // self.page_size:
            return
        entry = self.lower.find_tail(lease.tokens, page, end) if lease.computed == start else None
        if entry is not None:
            self._load(lease, page, entry, end - start)
            lease.computed = end

    def _load(self, lease: Lease, page: int, entry: FoundPage, tokens: int) -> None:
        target = lease.pages[page]
        lease._copies.append(PageLoad(target, entry.page.data))
        lease.tier_tokens[entry.tier] = lease.tier_tokens.get(entry.tier, 0) + tokens
        lease.copying = True
        self.events.add(PageLoaded(entry.page.key, target, entry.tier))

    def _copy(self, lease: Lease, source: int, target: int, tokens: int) -> None:
        lease._copies.append(PageCopy(source, target, tokens))
        lease.copying = True
        self.events.add(PageCopied(source, target, tokens))

    def _extend(self, lease: Lease, upto: int) -> bool:
        self._must_be_open(lease)
        size = self.page_size
        tail = lease.computed // size
        # Only the page that the next token falls into can be shared and partly filled.
        shared = tail < len(lease.pages) and tail >= lease.depth and self.pool.refs(lease.pages[tail]) > 1
        need = max(0, self.pages_for(upto) - len(lease.pages))
        if need + shared > self.available + self.tree.num_pinned:
            return False
        while need + shared > self.available:
            self.pins.lapse_oldest("room")
        if shared:
            own, old = self._allocate(), lease.pages[tail]
            lease.pages[tail] = own
            if filled := lease.computed % size:
                self._copy(lease, old, own, filled)
            self.pool.drop(old)
        for _ in range(need):
            lease.pages.append(self._allocate())
        self._keep_quotas()
        return True

    def _commit(self, lease: Lease, computed: int, output_from: int | None) -> None:
        self._must_be_open(lease)
        if computed < lease.computed or computed > lease.capacity:
            raise InvariantError(
                f"cannot commit {computed} tokens: {lease.computed} are computed, {lease.capacity} fit"
            )
        lease.computed = computed
        lease.copying = False
        self._drop_source(lease)
        if lease.depth < lease.tokens.num_full_pages:  # else there is no whole page to announce or to publish
            self._in_flight.withdraw(lease)
            if self.enabled:
                self._publisher.publish(lease, output_from)
            self._announce(lease)

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
        self._leases[twin] = None
        self.events.add(Forked(used))
        return twin

    def _release(self, lease: Lease) -> None:
        if lease.closed:
            return
        lease.closed = True
        self._leases.pop(lease, None)
        self._in_flight.withdraw(lease)
        if self.enabled and self.tails:
            self._publisher.keep_tail(lease)
        self._drop_source(lease)
        # Last page first, so that the pages of a beginning are reused last.
        for page in (*reversed(lease.pages[lease.depth :]), *lease.twins):
            self.pool.drop(page)
        if lease.depth and lease.node.has_page and not lease.twins:
            lease.tokens.trail = Trail(lease.node.key, lease.node.serial, lease.pages[: lease.depth])
        self.tree.release(lease.node)
        self._keep_quotas(lease.tokens.root)

    def _swap_out(self, lease: Lease) -> int:
        self._must_be_open(lease)
        tail = self._publisher.keep_tail(lease) if self.enabled and self.tails else None
        nodes = [*lease.node.path(), *([] if tail is None else [tail])]
        self._release(lease)
        # What nobody keeps any more is what this lease alone needed; a quota may have taken some of it already.
        free = [node for node in nodes if not (node.held or node.pinned)]
        mine = [node for node in free if self.tree.get(node.key) is node]
        if self.lower is None or len(mine) > self.lower.swap_pages:
            return 0
        self.lower.swap_out(mine)
        return len(mine)

    def _drop_source(self, lease: Lease) -> None:
        if lease.source is not None:
            self.tree.release(lease.source)
            lease.source = None

    def _must_be_open(self, lease: Lease) -> None:
        if lease.closed:
            raise InvariantError("the lease was released")

    # -- pins -----------------------------------------------------------------------------------------------------

    def pin(self, tokens: PagedTokens, until: float) -> Pin | None:
        """Keep what is cached of ``tokens`` until a time, inside the pin budget; ``None`` when nothing is."""
        match = self.tree.match(tokens, len(tokens))
        node = match.node
        if isinstance(match.partial, Node) and match.tokens(self.page_size) == len(tokens):
            node = match.partial
        return self.pins.add(node, until)

    def _room_for(self, need: int, match: Match, spare: int) -> int:
        """Pages that a prompt may take beside what it found; pins lapse, oldest first, where that makes it enough."""
        unkept, pinned = self.tree.unheld(match.node)
        room = self.available - unkept - spare
        if room < need <= room + self.tree.num_pinned - pinned:
            while room < need and self.pins.lapse_oldest("room"):
                unkept, _ = self.tree.unheld(match.node)
                room = self.available - unkept - spare
        return room

    def unpin(self, pin: Pin) -> None:
        """End a pin; does nothing when it has lapsed."""
        self.pins.remove(pin)
        self._keep_quotas()

    def expire_pins(self, now: float) -> None:
        """End the pins whose time is over."""
        self.pins.expire(now)
        self._keep_quotas()

    def _keep_quotas(self, space: bytes | None = None) -> None:
        """Evict what ``space``, and namespaces in which a pin has ended, keep beyond their quota, least valuable first.

        Where nothing else can go, pins lapse.  Only between operations: in the midst of one, what it has found is not held.
        """
        if self.quota is None:
            self.pins.ended_in.clear()
            return
        over = self.pins.ended_in | ({space} if space is not None else set())
        self.pins.ended_in.clear()
        for each in sorted(over - {self.public_root or b""}):
            while self.tree.sizes[each] > self.quota and (self.evict("quota", each) or self._lapse_idle_pin(each)):
                pass
        self.pins.ended_in.clear()

    def _lapse_idle_pin(self, space: bytes) -> bool:
        """End the oldest pin that keeps something of a namespace which nothing running needs; whether there was one."""
        pin = next(self.pins.idle_in(space), None)
        if pin is not None:
            self.pins.lapse(pin, "quota")
        return pin is not None

    # -- pages being computed -------------------------------------------------------------------------------------

    def _announce(self, lease: Lease) -> None:
        """Tell that this lease computes its next page now, so that others with the same beginning wait for it."""
        if self.enabled and lease.publishing:
            self._in_flight.announce(lease)

    def _why_not_further(self, tokens: PagedTokens, match: Match, below: int, *, reuse: bool) -> Miss | None:
        if not self.enabled:
            return Miss("disabled", 0, "the prefix cache is off")
        if not reuse:
            return Miss("disabled", 0, "the request needs every position computed")
        return explain(self.tree, tokens, match, below=below, tails=self.tails)

    def check(self) -> list[str]:
        """What is broken, in sentences; empty when all is well.  O(pages + leases)."""
        return check_manager(self)

    def leases(self) -> Iterator[Lease]:
        return iter(self._leases)

    def announced(self) -> Iterator[Lease]:
        """Leases that others wait for."""
        return iter(self._in_flight)
