"""Who leaves the cache first.  O(1) whatever the number of pages.

Only leaves leave, so the end of a chain always goes before its beginning and the tree stays prefix-closed.  Leaves stand
in one queue a class, least recently used first, and the classes are emptied in order.

Exact order::

    queue:  [ oldest … newest ]      nodes that no lease holds: leaves, and inner nodes that were themselves the end of
                                     a hit (they keep their place in time)

    pop the oldest:  an inner node or one that is held again  -> drop the entry, try the next
                     a leaf                                   -> evict it; if that makes its parent a leaf, the parent was
                                                                 last used no later than this child

A parent of the same class goes to the front of the queue.  One of a later class, or one that was itself used later, is put
among the nodes there by the time of that use: those few stand in a heap beside the queue.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentcache.cache.prefix_tree import Node


class EvictionClass(enum.IntEnum):
    """Emptied from the top down."""

    TAIL = 0
    """A page that is only partly filled and was never hit."""
    OUTPUT = 1
    """Generated and never hit."""
    ONCE = 2
    """Part of a prompt, or hit once."""
    SHARED = 3
    """Hit twice or more."""


class _Line:
    """One class: a queue in order of use, and nodes that joined it later, by the time they were used."""

    __slots__ = ("_heap", "_late", "_numbers", "_queue")

    def __init__(self) -> None:
        self._queue: OrderedDict[Node, None] = OrderedDict()
        self._late: dict[Node, int] = {}
        self._heap: list[tuple[int, int, Node]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._queue) + len(self._late)

    def __contains__(self, node: Node) -> bool:
        return node in self._queue or node in self._late

    def __iter__(self) -> Iterator[Node]:
        return iter(sorted((*self._queue, *self._late), key=lambda node: node.used))

    def append(self, node: Node) -> None:
        self._queue[node] = None

    def push_front(self, node: Node) -> None:
        self._queue[node] = None
        self._queue.move_to_end(node, last=False)

    def insert(self, node: Node) -> None:
        """By ``node.used``."""
        self._late[node] = node.used
        heappush(self._heap, (node.used, next(self._numbers), node))
        if len(self._heap) > 2 * len(self._late) + 64:  # mostly entries of nodes that have left
            self._heap = [(used, next(self._numbers), late) for late, used in self._late.items()]
            heapify(self._heap)

    def discard(self, node: Node) -> None:
        self._queue.pop(node, None)
        self._late.pop(node, None)

    def pop(self) -> Node | None:
        """The next in order of use."""
        while self._queue or self._heap:
            node = self._take_late() if self._late_is_next() else self._queue.popitem(last=False)[0]
            if node is not None:
                return node
        return None

    def _late_is_next(self) -> bool:
        return bool(self._heap) and (not self._queue or self._heap[0][0] <= next(iter(self._queue)).used)

    def _take_late(self) -> Node | None:
        used, _, node = heappop(self._heap)
        if self._late.get(node) != used:  # it has left, or joined anew
            return None
        del self._late[node]
        return node


class EvictionQueue:
    """Nodes that may be evicted, by class, least recently used first.

    Args:
        by_space: keep the order within each namespace as well.
    """

    __slots__ = ("_lines", "_spaces", "_where")

    def __init__(self, *, by_space: bool = False) -> None:
        self._lines = tuple(_Line() for _ in EvictionClass)
        self._where: dict[Node, _Line] = {}
        self._spaces: dict[bytes, EvictionQueue] | None = {} if by_space else None

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, node: Node) -> bool:
        return node in self._where

    def touch(self, node: Node) -> None:
        """Enter ``node`` as the most recently used of its class."""
        self.discard(node)
        line = self._where[node] = self._lines[node.eviction_class]
        line.append(node)
        if self._spaces is not None:
            self._space(node).touch(node)

    def enter(self, node: Node, *, oldest: bool) -> None:
        """Enter a node whose last child has just been evicted.

        Args:
            oldest: nobody of its class was used before it.
        """
        line, place = self._lines[node.eviction_class], self._where.get(node)
        if place is None and oldest:
            line.push_front(node)
        elif place is not line or not oldest:  # what was known of its child may have changed its class
            self.discard(node)
            line.insert(node)
        self._where[node] = line
        if self._spaces is not None:
            self._space(node).enter(node, oldest=oldest)

    def discard(self, node: Node) -> None:
        line = self._where.pop(node, None)
        if line is not None:
            line.discard(node)
        if self._spaces is not None and (space := self._spaces.get(node.chain.space)) is not None:
            space.discard(node)
            if not len(space):
                del self._spaces[node.chain.space]

    def pop(self, space: bytes | None = None) -> Node | None:
        """Remove and return the next leaf to evict, of one namespace or of all; ``None`` when nothing can be evicted."""
        if space is not None:
            node = None if self._spaces is None or space not in self._spaces else self._spaces[space].pop()
            if node is not None:
                self.discard(node)
            return node
        for line in self._lines:
            while (node := line.pop()) is not None:
                if self._spaces is None:
                    del self._where[node]
                else:
                    self.discard(node)
                if node.evictable:
                    return node
        return None

    def nodes(self) -> list[Node]:
        """Every entry, next to go first (for checks and for the explorer; O(n log n))."""
        return [node for line in self._lines for node in line]

    def _space(self, node: Node) -> EvictionQueue:
        assert self._spaces is not None
        return self._spaces.setdefault(node.chain.space, EvictionQueue())
