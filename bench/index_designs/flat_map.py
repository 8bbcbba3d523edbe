"""A flat map from chained page hashes to pages, and one list of free-able pages in order of use.

This is the design of vLLM's automatic prefix caching (Kwon et al., "PagedAttention", SOSP 2023; ``vllm/v1/core``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from agentcache.cache.tokens import PagedTokens
from bench.index_designs.interface import Found


class Block:
    """One page and how many requests use it."""

    __slots__ = ("key", "page", "users")

    def __init__(self, key: bytes, page: int) -> None:
        self.key = key
        self.page = page
        self.users = 1


class FlatMap:
    """Whole pages only.  Pages do not know each other: pinning touches every one of them.

    ::

        map:   key(0) -> block   key(1) -> block   key(2) -> block ...        the chain is in the keys
        free:  [ oldest ... newest ]      blocks without users; of one request the last page comes first, so that a
                                          prompt is forgotten from its end

    The hash is trusted: tokens are not compared (the field takes a cryptographic hash where that matters; here it is the
    hash of the other designs, so that all pay the same for hashing).  A page whose predecessor was evicted stays until it
    is the oldest, though nothing can reach it.
    """

    name = "flat map"
    field_use = "vLLM"

    def __init__(self, page_size: int) -> None:
        self._size = page_size
        self._blocks: dict[bytes, Block] = {}
        self._free: OrderedDict[Block, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def lookup(self, tokens: PagedTokens) -> Found[list[Block]]:
        blocks: list[Block] = []
        count = tokens.num_full_pages
        known = self._blocks
        for key in tokens.keys(count)[:count]:
            block = known.get(key)
            if block is None:
                break
            blocks.append(block)
        return Found(len(blocks) * self._size, [block.page for block in blocks], blocks)

    def pin(self, found: Found[list[Block]]) -> None:
        free = self._free
        for block in found.at:
            if not block.users:
                del free[block]
            block.users += 1

    def unpin(self, found: Found[list[Block]]) -> None:
        free = self._free
        for block in reversed(found.at):
            block.users -= 1
            if not block.users:
                free[block] = None

    def publish(self, found: Found[list[Block]], tokens: PagedTokens, pages: Iterable[int]) -> Found[list[Block]]:
        blocks = found.at.copy()
        keys = tokens.keys(tokens.num_full_pages)
        for index, page in enumerate(pages, start=len(blocks)):
            key = keys[index]
            block = self._blocks.get(key)
            if block is None:
                block = self._blocks[key] = Block(key, page)
            else:
                if not block.users:
                    del self._free[block]
                block.users += 1
            blocks.append(block)
        return Found(len(blocks) * self._size, [block.page for block in blocks], blocks)

    def evict(self, count: int) -> list[int]:
        pages: list[int] = []
        while len(pages) < count and self._free:
            block, _ = self._free.popitem(last=False)
            del self._blocks[block.key]
            pages.append(block.page)
        return pages
