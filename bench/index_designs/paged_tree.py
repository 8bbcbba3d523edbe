"""The index of this runtime: a tree with one page a node, found through a map from chained hashes (agentcache/cache)."""

from __future__ import annotations

from collections.abc import Iterable

from agentcache.cache.prefix_tree import Node, PrefixTree
from agentcache.cache.tokens import PagedTokens
from bench.index_designs.interface import Found


class PagedTree:
    """``agentcache.cache.prefix_tree`` behind the common interface.

    A match is compared token by token, may end inside a page, and costs one map access a page.  Only the end of a chain is
    held; evicting is O(1) and takes one page, a leaf, at a time.
    """

    name = "paged tree"
    field_use = "agentcache"

    def __init__(self, page_size: int) -> None:
        self._tree = PrefixTree(page_size)
        self._size = page_size

    def __len__(self) -> int:
        return len(self._tree)

    def lookup(self, tokens: PagedTokens) -> Found[Node]:
        match = self._tree.match(tokens, len(tokens))
        return Found(match.tokens(self._size), match.pages, match.node)

    def pin(self, found: Found[Node]) -> None:
        self._tree.hold(found.at)

    def unpin(self, found: Found[Node]) -> None:
        self._tree.release(found.at)

    def publish(self, found: Found[Node], tokens: PagedTokens, pages: Iterable[int]) -> Found[Node]:
        tree, node = self._tree, found.at
        table = found.pages.copy()
        keys = tokens.keys(tokens.num_full_pages)
        for index, page in enumerate(pages, start=len(table)):
            child = tree.insert(node, keys[index], tokens.page_bytes(index), page, output=False)
            if child is None:  # two pages with one hash: the rest cannot be published
                break
            tree.hold(child)
            tree.release(node)
            table.append(child.page)
            node = child
        return Found(len(table) * self._size, table, node)

    def evict(self, count: int) -> list[int]:
        pages: list[int] = []
        while len(pages) < count and (node := self._tree.evict()) is not None:
            pages.append(node.page)
        return pages
