"""The right of one sequence to its pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentcache.cache.explain import Miss
from agentcache.cache.pages import PageCopy, PageLoad
from agentcache.cache.prefix_tree import Node
from agentcache.cache.tokens import PagedTokens

if TYPE_CHECKING:
    from agentcache.cache.manager import CacheManager


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
        "cached_pages",
        "cached_tokens",
        "closed",
        "computed",
        "copying",
        "depth",
        "miss",
        "node",
        "pages",
        "publishing",
        "source",
        "tier_tokens",
        "tokens",
        "twins",
    )

    def __init__(self, manager: CacheManager, tokens: PagedTokens, node: Node, pages: list[int]) -> None:
        self._manager = manager
        self._copies: list[PageCopy | PageLoad] = []
        self.source: Node | None = None
        self.twins: list[int] = []
        self.tokens = tokens
        self.node = node
        self.depth = len(pages)
        self.pages = pages
        self.computed = 0
        self.cached_tokens = 0
        self.cached_pages = len(pages)
        self.tier_tokens: dict[str, int] = {}
        """Cached tokens by the tier below the device that they came back from."""
        self.miss: Miss | None = None
        self.publishing = True
        self.copying = False
        """Copies were planned whose step has not been committed: what the target pages hold is not known to be right."""
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

    def take_copies(self) -> list[PageCopy | PageLoad]:
        """Pages to copy or fill before the next forward pass, in this order; each is given once."""
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

    def swap_out(self) -> int:
        """Release, and keep copies in host memory of the pages that nobody else needs.

        Returns:
            How many pages were copied; none where there is no host tier, or where it is smaller than that.
        """
        return self._manager._swap_out(self)

    def release(self) -> None:
        """Give everything back: published pages stay as cache, so does a partly filled last one, the rest becomes free."""
        self._manager._release(self)
