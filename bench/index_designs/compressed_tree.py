"""A path-compressed radix tree over tokens, evicted leaf by leaf through a heap.

This is the design of SGLang's RadixAttention (Zheng et al., "SGLang", NeurIPS 2024; ``sglang/srt/mem_cache/radix_cache.py``),
with its page-aligned edges.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count as counting

from agentcache.cache.hashing import TOKEN_BYTES
from agentcache.cache.tokens import PagedTokens
from bench.index_designs.interface import Found, common_units


class Edge:
    """A run of pages without a branch, and what follows it."""

    __slots__ = ("children", "pages", "parent", "pins", "tokens", "used")

    def __init__(self, parent: Edge | None, tokens: bytes, pages: list[int]) -> None:
        self.parent = parent
        self.tokens = tokens
        self.pages = pages
        self.children: dict[bytes, Edge] = {}
        """By the tokens of their first page."""
        self.pins = 0
        self.used = 0


Place = list[Edge]
"""The edge that a match ends at, alone in a list: pinning puts the upper half there when it splits the edge."""


class CompressedTree:
    """Whole pages, compared token by token; no hashes.  A match costs one map access an edge, whatever its length.

    ::

        root ──[ p p p p p p ]──┬──[ p p p ]          pinning a match that ends inside an edge splits the edge there;
                                └──[ p ]──[ p p ]     evicting takes a whole edge

    Leaves stand in a heap by last use.  An entry that is out of date is dropped when it comes up, which costs O(log n) an
    entry and keeps the heap from being built anew each time room is needed.
    """

    name = "compressed tree"
    field_use = "SGLang"

    def __init__(self, page_size: int) -> None:
        self._size = page_size
        self._width = page_size * TOKEN_BYTES
        self._roots: dict[bytes, Edge] = {}
        self._heap: list[tuple[int, int, Edge]] = []
        self._numbers = counting()
        self._clock = 0
        self._num_pages = 0

    def __len__(self) -> int:
        return self._num_pages

    def lookup(self, tokens: PagedTokens) -> Found[Place]:
        root = self._roots.get(tokens.root)
        if root is None:
            root = self._roots[tokens.root] = Edge(None, b"", [])
        edge, pages = self._descend(root, tokens.packed(), 0)
        return Found(len(pages) * self._size, pages, [edge])

    def _descend(self, edge: Edge, data: bytes, start: int) -> tuple[Edge, list[int]]:
        """Follow ``data`` from byte ``start`` on; the last edge that was entered, and the pages on the way."""
        width = self._width
        pages: list[int] = []
        while (child := edge.children.get(data[start : start + width])) is not None:
            edge = child
            end = start + len(edge.tokens)
            if data[start:end] != edge.tokens:
                pages += edge.pages[: common_units(edge.tokens, data[start:end], width)]
                break
            pages += edge.pages
            start = end
        return edge, pages

    def pin(self, found: Found[Place]) -> None:
        edge = found.at[0] = self._cut(found.at[0], len(found.pages))
        self._add_pins(edge, None)

    def _cut(self, edge: Edge, depth: int) -> Edge:
        """The edge that ends at page ``depth``: ``edge``, or the upper half of it."""
        keep, at = depth, edge.parent
        while at is not None:
            keep -= len(at.pages)
            at = at.parent
        if keep == len(edge.pages):
            return edge
        parent = edge.parent
        assert parent is not None  # the root is empty, and nothing ends inside it
        upper = Edge(parent, edge.tokens[: keep * self._width], edge.pages[:keep])
        upper.pins, upper.used = edge.pins, edge.used
        parent.children[upper.tokens[: self._width]] = upper
        edge.parent = upper
        edge.tokens, edge.pages = edge.tokens[keep * self._width :], edge.pages[keep:]
        upper.children[edge.tokens[: self._width]] = edge
        return upper

    @staticmethod
    def _add_pins(edge: Edge, upto: Edge | None) -> None:
        at: Edge | None = edge
        while at is not upto and at is not None:
            at.pins += 1
            at = at.parent

    def unpin(self, found: Found[Place]) -> None:
        self._clock += 1
        at: Edge | None = found.at[0]
        while at is not None:
            at.pins -= 1
            at.used = self._clock
            self._offer(at)
            at = at.parent

    def _offer(self, edge: Edge) -> None:
        if not edge.pins and not edge.children and edge.parent is not None:
            heapq.heappush(self._heap, (edge.used, next(self._numbers), edge))

    def publish(self, found: Found[Place], tokens: PagedTokens, pages: Iterable[int]) -> Found[Place]:
        start, data = len(found.pages), tokens.packed()
        data = data[: len(data) // self._width * self._width]
        fresh = list(pages)
        origin = found.at[0]
        edge, known = self._descend(origin, data, start * self._width)
        table = found.pages + known
        edge = self._cut(edge, len(table))
        if len(known) < len(fresh):
            leaf = Edge(edge, data[len(table) * self._width :], fresh[len(known) :])
            edge.children[leaf.tokens[: self._width]] = leaf
            self._num_pages += len(leaf.pages)
            table = table + leaf.pages
            edge = leaf
        self._add_pins(edge, origin)
        return Found(len(table) * self._size, table, [edge])

    def evict(self, count: int) -> list[int]:
        pages: list[int] = []
        while len(pages) < count and self._heap:
            used, _, edge = heapq.heappop(self._heap)
            parent = edge.parent
            if edge.pins or edge.children or parent is None or used != edge.used:
                continue
            del parent.children[edge.tokens[: self._width]]
            edge.parent = None
            pages += edge.pages
            self._offer(parent)
        self._num_pages -= len(pages)
        return pages
