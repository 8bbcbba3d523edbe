"""Where pages go when the device has no room for them, and where they come back from.

::

    device pages ──evicted──► host memory ──oldest──► gone
         ▲    │                   │
         │    └──hit, evicted, shutdown──► disk (written behind)
         └───────────copied back on a hit, never moved: the lower copy stays

Behind the disk there can be a store that servers share (``fetching``).  Only full pages are stored, except for a sequence that is
*swapped out*: it gives its pages back although it is not finished, and host memory keeps its partly filled last one too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentcache.cache.behind import Backlog
from agentcache.cache.eviction import EvictionClass
from agentcache.cache.hashing import pack_tokens, page_key
from agentcache.cache.prefix_tree import Node, PrefixTree
from agentcache.cache.residency import PageArrived, found_at, lineage
from agentcache.cache.tiers import HostTier, PageIO, PageName, StoredPage, Tier, TierStats, at_once
from agentcache.cache.tokens import PagedTokens
from agentcache.faults import Faults

if TYPE_CHECKING:
    from agentcache.cache.fetching import FarTier, Fetch

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page that a tier can give back."""

    tier: str
    page: StoredPage


class LowerTiers:
    """The tiers of one engine, nearest first, and what moves pages between them and the device.

    Args:
        faults: where tests make copying fail.
        when_read: for an ``io`` that reads behind the step: gives what waits for every page read so far.
        far: a last tier that answers later.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        io: PageIO,
        faults: Faults | None = None,
        when_read: Callable[[], Callable[[], None]] | None = None,
        far: FarTier | None = None,
    ) -> None:
        self.far = far
        self.near = tuple(tiers)
        self.tiers: tuple[Tier, ...] = self.near if far is None else (*self.near, far)
        self._io = io
        self._when_read = when_read
        self._faults = faults or Faults()
        self._durable = [tier for tier in self.tiers if tier.durable]
        self._host = [tier for tier in self.tiers if isinstance(tier, HostTier)]
        self.copy_s: float | None = None
        """Seconds that reading one page takes, of late; ``None`` before the first."""
        self.token_s = 0.0
        """Seconds that computing one prompt token takes, of late; 0 before the first."""
        self._backlog = Backlog(self.store, self._is_stored, lambda: all(tier.has_room for tier in self._durable))

    @property
    def _epoch(self) -> int:
        """What was stored in an earlier one may be gone by now."""
        return self.far.epoch if self.far is not None else 0

    def _is_stored(self, node: Node) -> bool:
        return node.stored == self._epoch

    def store(self, node: Node) -> bool:
        """Copy a page to the tiers where it is missing; whether there was any.  A page that cannot be copied is only a page not
        kept."""
        if not node.tail and node.has_page:
            node.stored = self._epoch
            return self._put(node, self.tiers)
        return False

    def _put(self, node: Node, tiers: Sequence[Tier]) -> bool:
        assert node.parent is not None  # it has a page
        missing = [tier for tier in tiers if tier.lacks(node.key)]
        if missing:
            started = time.perf_counter()
            try:
                self._faults.trip("host_copy")
                data = self._io.read_page(node.page)
                whole = self._when_read() if self._when_read is not None else at_once
                told = () if node.tail else lineage(node)
                page = StoredPage(node.key, node.parent.key, node.tokens, data, whole, *told)
            except Exception:
                logger.exception("page %d was not copied to the tiers below", node.page)
                return True
            took = time.perf_counter() - started
            self.copy_s = took if self.copy_s is None else self.copy_s + (took - self.copy_s) / 8
            for tier in missing:
                tier.put(page)
        for tier in tiers:
            tier.touch(node.key)
        return bool(missing)

    @property
    def swap_pages(self) -> int:
        """Pages that host memory can take of a sequence that is swapped out."""
        return sum(tier.capacity for tier in self._host)

    def swap_out(self, nodes: Sequence[Node]) -> None:
        """Copy pages to host memory, full or not; the first of them last, so that it leaves last."""
        for node in reversed(nodes):
            self._put(node, self._host)

    def find_tail(self, tokens: PagedTokens, page: int, end: int) -> FoundPage | None:
        """The partly filled page ``page`` of a sequence that was swapped out when it had ``end`` tokens."""
        ids = pack_tokens(tokens[page * tokens.page_size : end])
        parent = tokens.parent_key(page)
        return self._first(page_key(parent, ids), parent, ids) if ids else None

    # -- what is owed to the durable tiers ------------------------------------------------------------------------

    def store_behind(self, node: Node, tree: PrefixTree) -> None:
        """A prompt that is used again is worth keeping across a restart: ``store_some`` stores its pages, the last one first."""
        if self._durable:
            self._backlog.add(node, tree)

    @property
    def owes(self) -> bool:
        """Whether there is something for ``store_some``."""
        return bool(self._backlog)

    def store_some(self, tree: PrefixTree) -> bool:
        """Store a few of the pages that are owed; ``False`` when there are none, or the tiers can take none now."""
        return self._backlog.store_some(tree)

    def check(self, tree: PrefixTree) -> list[str]:
        """What is broken, in sentences."""
        return list(self._backlog.check(tree))

    def save(self, tree: PrefixTree, timeout_s: float) -> None:
        """Store what prompts are made of, best kept first; before a shutdown.  Each tier has its share of the time."""
        kept = (
            node for node in tree.nodes() if node.eviction_class >= EvictionClass.ONCE and not self._is_stored(node)
        )
        worth = sorted(kept, key=lambda node: (node.eviction_class, node.used), reverse=True)
        worth[:0] = self._backlog.ends(tree)
        for tier in self._durable:
            deadline = time.monotonic() + timeout_s / len(self._durable)
            done: set[Node] = set()
            for node in worth:
                if not tier.catch_up(deadline):
                    break
                self._save_path(node, tier, done)

    def _save_path(self, node: Node, tier: Tier, done: set[Node]) -> None:
        """Store a page and what is before it, the last one first."""
        at: Node | None = node
        while at is not None and not self._is_stored(at) and at not in done:
            done.add(at)
            if at.has_page and not at.tail:
                self._put(at, [tier])
            at = at.parent

    def close(self, timeout_s: float) -> None:
        """Have each tier finish what it owes, for at most so long together."""
        deadline = time.monotonic() + timeout_s
        for tier in self.tiers:
            tier.close(max(0.0, deadline - time.monotonic()))

    def stats(self) -> tuple[TierStats, ...]:
        return tuple(tier.stats() for tier in self.tiers)

    def find(self, tokens: PagedTokens, start: int) -> list[FoundPage]:
        """Stored pages that continue ``tokens`` from full page ``start`` on, as far as there is no gap.

        ::

            pages:  | 0 .. start: in the tree | start | start + 1 | ...  missing | not looked at
        """
        found: list[FoundPage] = []
        for index in range(start, tokens.num_full_pages):
            page = self._first(tokens.key(index), tokens.parent_key(index), tokens.page_bytes(index))
            if page is None:
                break
            found.append(page)
        # The last page first: what is used last leaves last, and the beginning of a chain must outlive its end.
        for entry in reversed(found):
            for tier in self.tiers:
                tier.touch(entry.page.key)
        self._tell_of(tokens, range(start, start + len(found)))
        return found

    def _tell_of(self, tokens: PagedTokens, pages: range) -> None:
        """Pages that an earlier run left are told when they are found: until then only their files know what they hold."""
        listening = [tier for tier in self.tiers if tier.listener is not None]
        for index in pages if listening else ():
            page = found_at(tokens, index)
            for tier in listening:
                tier.seen(page)

    def residents(self) -> Iterator[PageArrived]:
        """Whole pages whose tokens are known, which is so in host memory."""
        for tier in self._host:
            yield from tier.residents()

    # -- a tier that answers later --------------------------------------------------------------------------------

    def pages_at_hand(self, tokens: PagedTokens, start: int) -> int:
        """Whole pages of ``tokens`` from ``start`` on that the tiers can give now, without a gap."""
        page = start
        while page < tokens.num_full_pages and any(tokens.key(page) in tier for tier in self.tiers):
            page += 1
        return page - start

    def fetch(self, tokens: PagedTokens, start: int) -> Fetch:
        """Ask the far tier for the full pages of ``tokens`` from ``start`` on that no nearer one has."""
        assert self.far is not None
        names = [
            PageName(tokens.key(page), tokens.parent_key(page), tokens.page_bytes(page))
            for page in range(start, min(tokens.num_full_pages, start + self.far.most_pages))
            if not any(tokens.key(page) in tier for tier in self.near)
        ]
        return self.far.fetch(names, tokens.keys(start)[:start], self.token_s)

    def where(self, key: bytes) -> str | None:
        """The nearest tier that has a page, or is taken to have it."""
        at_hand = next((tier.name for tier in self.tiers if key in tier), None)
        if at_hand is None and self.far is not None and self.far.knows(key):
            return self.far.name
        return at_hand

    def _first(self, key: bytes, parent: bytes, tokens: bytes) -> FoundPage | None:
        for tier in self.tiers:
            page = tier.get(key, parent, tokens)
            if page is not None:
                return FoundPage(tier.name, page)
        return None
