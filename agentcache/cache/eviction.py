"""Who leaves the cache first.  O(1) whatever the number of pages.

Only leaves leave, so the end of a chain always goes before its beginning and the tree stays prefix-closed.  Leaves stand
in one queue a class, least recently used first, and the classes are emptied in order.

Exact order without a heap::

    queue:  [ oldest … newest ]      nodes that no lease holds: leaves, and inner nodes that were themselves the end of
                                     a hit (they keep their place in time)

    pop the oldest:  an inner node or one that is held again  -> drop the entry, try the next
                     a leaf                                   -> evict it; if that makes its parent a leaf, and the parent
                                                                 has no entry of its own, the parent was last used no later
                                                                 than this child: it goes to the front of its class
"""

from __future__ import annotations

import enum
from collections import OrderedDict
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


class EvictionQueue:
    """Nodes that may be evicted, by class, least recently used first."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: tuple[OrderedDict[Node, None], ...] = tuple(OrderedDict() for _ in EvictionClass)

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def __contains__(self, node: Node) -> bool:
        return any(node in queue for queue in self._queues)

    def touch(self, node: Node) -> None:
        """Enter ``node`` as the most recently used of its class."""
        self.discard(node)
        self._queues[node.eviction_class][node] = None

    def enter_oldest(self, node: Node) -> None:
        """Enter ``node`` as the least recently used of its class, unless it has a place already."""
        if node not in self:
            queue = self._queues[node.eviction_class]
            queue[node] = None
            queue.move_to_end(node, last=False)

    def discard(self, node: Node) -> None:
        for queue in self._queues:
            queue.pop(node, None)

    def pop(self) -> Node | None:
        """Remove and return the next leaf to evict; ``None`` when nothing can be evicted."""
        for queue in self._queues:
            while queue:
                node, _ = queue.popitem(last=False)
                if node.evictable:
                    return node
        return None

    def nodes(self) -> list[Node]:
        """Every entry, next to go first (for checks and for the explorer; O(n))."""
        return [node for queue in self._queues for node in queue]
