"""Pages of prompts that were used again, on their way to the durable tiers, a few of them each step.

::

    prompt:   | page | page |   ...   | page | page | page |
                                  ◄──── at      ◄── stored            a step takes some pages, from the end to the beginning:
                                                                      what is stored last is forgotten last

A long prompt has thousands of pages, and copying one takes time that everybody's next token waits for.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from agentcache.cache.prefix_tree import Node, PrefixTree


class StepBudget(NamedTuple):
    """What one step may spend; one page is always stored.

    Attributes:
        pages: copied.
        looks: pages looked at, copied or not.
        seconds: after which no other page is begun.
    """

    pages: int = 8
    looks: int = 256
    seconds: float = 0.002


class Backlog:
    """Paths of the tree whose pages are to be stored.  Engine's thread only.

    A page that leaves the tree meanwhile is stored by whoever evicts it, and what is before it still in turn.

    Args:
        store: copies a page; whether there was anything to copy.  It marks the page, so that ``is_stored`` says so.
        is_stored: whether a page was stored; then all before it were, too, or another path here sees to them.
        has_room: whether what is copied now is taken.
        budget: of one step.
        clock: seconds.
    """

    MOST = 256
    """Paths; when there are so many, prompts are taken in when they are used once more."""

    def __init__(
        self,
        store: Callable[[Node], bool],
        is_stored: Callable[[Node], bool],
        has_room: Callable[[], bool],
        budget: StepBudget | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.budget = budget or StepBudget()
        self._store = store
        self._is_stored = is_stored
        self._has_room = has_room
        self._clock = clock
        self._paths: OrderedDict[Node, None] = OrderedDict()
        """By the page that is next of each, in the order in which they came."""

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, node: Node, tree: PrefixTree) -> None:
        """A prompt that ends at ``node`` was used again."""
        if self._is_stored(node) or node in self._paths:
            return
        if len(self._paths) >= self.MOST:
            self._paths = OrderedDict.fromkeys(list(self.ends(tree)))
        if len(self._paths) < self.MOST:
            self._paths[node] = None

    def ends(self, tree: PrefixTree) -> Iterator[Node]:
        """The next page of each path that is still in the tree."""
        for node in self._paths:
            at: Node | None = node
            while at is not None and _gone(at, tree):
                at = at.parent
            if at is not None and not self._is_stored(at):
                yield at

    def store_some(self, tree: PrefixTree) -> bool:
        """Store what one step may; whether that was anything."""
        pages, looks, seconds = self.budget
        until = self._clock() + seconds
        looked = 0
        while self._paths and pages and looked < looks and self._has_room():
            at = next(iter(self._paths))
            gone = _gone(at, tree)
            before = at.parent if gone or not self._is_stored(at) else None
            if before is not None and not gone and at.has_page and self._store(at):
                pages = pages - 1 if self._clock() < until else 0
            looked += 1
            del self._paths[at]
            if before is not None:
                self._paths[before] = None
                self._paths.move_to_end(before, last=False)
        return looked > 0

    def check(self, tree: PrefixTree) -> Iterator[str]:
        """What is broken, in sentences: pages that are taken to be stored, with one before them that is not and never will be."""
        coming: set[Node] = set()
        for end in self.ends(tree):
            at: Node | None = end
            while at is not None and at not in coming and not self._is_stored(at):
                coming.add(at)
                at = at.parent
        for node in tree.nodes():
            before = node.parent
            while before is not None and not before.has_page:
                before = before.parent
            if self._is_stored(node) and before is not None and not self._is_stored(before) and before not in coming:
                yield f"{node} is stored, and what is before it is not and nobody sees to it"


def _gone(node: Node, tree: PrefixTree) -> bool:
    return node.has_page and tree.get(node.key) is not node
