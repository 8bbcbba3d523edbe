"""Who needs how much of an unbranched run of pages, so that keeping 6,000 pages costs no more than keeping one.

A tree is cut into *chains*: the first child of a node goes on with its chain, every other child begins one of its own::

    chain A   root ── p1 ── p2 ── p3 ── p4            depths 1 to 4
                             │
    chain B                  └── p3'── p4'            depths 3 and 4; base 2: it hangs from depth 2 of A

Whoever needs a page needs all that is above it.  A need is therefore one number a chain, the depth it reaches, and what is
needed of the chain is everything down to the deepest one.  A chain that is needed at all needs its parent down to its base.
Keeping a sequence costs a few dictionary operations for each branch above it, however long it is; pages themselves never
move between chains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentcache.cache.prefix_tree import Node


class Needs:
    """Depths of one chain that are needed; several may need the same."""

    __slots__ = ("_base", "counts", "reach")

    def __init__(self, base: int) -> None:
        self._base = base
        self.counts: dict[int, int] = {}
        self.reach = base
        """The deepest; the chain's base when nothing is needed."""

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, depth: int) -> None:
        self.counts[depth] = self.counts.get(depth, 0) + 1
        self.reach = max(self.reach, depth)

    def remove(self, depth: int) -> None:
        left = self.counts[depth] - 1
        if left:
            self.counts[depth] = left
            return
        del self.counts[depth]
        if depth == self.reach:
            self.reach = max(self.counts, default=self._base)


class Chain:
    """An unbranched run of nodes.

    Attributes:
        head: the root or the gate that it begins behind; ``None`` where it branches off another chain.
        base: depth of what it begins behind; the chain's own pages are at ``base + 1`` to ``end``.
        space: key of the namespace that its pages count for.
        leases: needs of sequences that run, and of chains that hang from this one and are needed by such.
        pins: the same for pins.
        lapsed: depths ``(after, upto]`` that a pin which ran out had kept.
        branches: its nodes that other chains hang from, and how many do.
    """

    __slots__ = ("base", "branches", "end", "head", "lapsed", "leases", "parent", "pins", "space")

    def __init__(self, head: Node | None, parent: Chain | None, base: int, space: bytes) -> None:
        self.head = head
        self.parent = parent
        self.base = base
        self.end = base
        self.space = space
        self.leases = Needs(base)
        self.pins = Needs(base)
        self.lapsed = (base, base)
        self.branches: dict[Node, int] = {}

    @property
    def num_live(self) -> int:
        """Pages that a lease needs."""
        return self.leases.reach - self.base

    @property
    def num_pinned(self) -> int:
        """Pages that a pin needs and no lease does."""
        return max(0, self.pins.reach - self.leases.reach)

    @property
    def num_with_pin(self) -> int:
        return self.pins.reach - self.base

    def keeps(self, depth: int) -> bool:
        """Whether a lease or a pin needs the page at ``depth``."""
        return depth <= self.leases.reach or depth <= self.pins.reach

    def pin_ran_out(self, after: int, upto: int) -> None:
        """Remember that the pages at ``(after, upto]`` were pinned.  Of two spans that do not touch, the deeper one."""
        low, high = self.lapsed
        if after > high or low >= high:
            self.lapsed = (after, upto)
        elif upto >= low:
            self.lapsed = (min(low, after), max(high, upto))

    def branch_off(self, node: Node, change: int) -> None:
        """One chain more (or less) hangs from ``node``."""
        self.branches[node] = self.branches.get(node, 0) + change
        if not self.branches[node]:
            del self.branches[node]

    def forget(self, depth: int) -> None:
        """The page at ``depth``, the last one, leaves."""
        self.end = depth - 1
        low, high = self.lapsed
        if high >= depth:
            self.lapsed = (min(low, depth - 1), depth - 1)
