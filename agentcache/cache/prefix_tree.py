"""The index: a radix tree whose digits are whole pages.

::

    root(namespace) ── page ── page ── page          one node a page, keyed by the chained hash of everything up to its end
                        │         └─── page          (hashing.py); nodes never split, so a lookup never changes the tree
                        └─── page ── page

A node that a lease ends at is *held*, and so is everything above it: holding the end of a chain protects the whole chain.
A *pin* protects in the same way, but gives way when running requests need the room.  What is neither held nor pinned may be
evicted, leaves first (eviction.py).

The last page of a finished sequence is mostly not full.  It becomes a leaf too, a *tail*: nothing can follow it, but a prompt
that goes on where it ends copies its tokens instead of computing them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from agentcache.cache.eviction import EvictionClass, EvictionQueue
from agentcache.cache.hashing import TOKEN_BYTES, page_key
from agentcache.cache.tokens import PagedTokens

_BY_TOKENS = attrgetter("tokens")


class Node:
    """One page of the index.

    Attributes:
        key: chained hash of everything up to the page's end; the namespace root's own key for a root.
        tokens: packed ids of this page (``hashing.pack_tokens``), fewer than a page in a tail; empty for a root.
        page: number of the page that holds its keys and values; -1 for a root.
        children: ordered by ``tokens``, so that the child with the longest common beginning is found by bisection.
        holders: leases that end here plus children that are held.  Above 0: the node and its page stay.
        pins: pins that end here plus children that are pinned.
        lapsed: a pin on it ran out.
        stored: it was handed to the tiers below.
    """

    __slots__ = (
        "children", "hits", "holders", "key", "lapsed", "output", "page", "parent", "pins", "stored", "tail", "tokens", "used",
    )  # fmt: skip

    def __init__(
        self, key: bytes, parent: Node | None, tokens: bytes, page: int, *, output: bool = False, tail: bool = False
    ) -> None:
        self.key = key
        self.parent = parent
        self.tokens = tokens
        self.page = page
        self.children: list[Node] = []
        self.holders = 0
        self.pins = 0
        self.hits = 0
        self.output = output
        self.tail = tail
        self.lapsed = False
        self.stored = False
        self.used = 0

    @property
    def is_root(self) -> bool:
        return self.parent is None

    @property
    def eviction_class(self) -> EvictionClass:
        if self.hits >= 2:
            return EvictionClass.SHARED
        if self.tail and not self.hits:
            return EvictionClass.TAIL
        return EvictionClass.OUTPUT if self.output and not self.hits else EvictionClass.ONCE

    @property
    def evictable(self) -> bool:
        return not (self.holders or self.pins or self.children)

    def path(self) -> list[Node]:
        """From the first page to this one; empty for a root."""
        nodes: list[Node] = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes

    def __repr__(self) -> str:
        return f"Node(page={self.page}, holders={self.holders}, children={len(self.children)}, hits={self.hits})"


@dataclass(slots=True)
class Match:
    """What the tree knows of a prompt.

    ::

        prompt:  | page | page | page | p p . . |            pages = 3, partial_tokens = 2: a fourth page begins
                 [ ------ equal ----------- ]                with the same two tokens
    """

    node: Node
    pages: list[int]
    partial: Node | None = None
    partial_tokens: int = 0

    def tokens(self, page_size: int) -> int:
        return len(self.pages) * page_size + self.partial_tokens


class PrefixTree:
    """All namespaces' pages by key.

    Args:
        page_size: tokens a page.
        remember: how many evicted keys to remember, so that a later miss can say ``evicted``.
    """

    def __init__(self, page_size: int, remember: int = 1024) -> None:
        self.page_size = page_size
        self.queue = EvictionQueue()
        self.num_live = 0
        """Nodes that are held."""
        self.num_pinned = 0
        """Nodes that are pinned and not held."""
        self.num_with_pin = 0
        """Nodes that are pinned, held or not."""
        self.clock = 0
        """Operations so far; ages are counted in it."""
        self._nodes: dict[bytes, Node] = {}
        self._roots: dict[bytes, Node] = {}
        self._evicted: OrderedDict[bytes, tuple[int, bool]] = OrderedDict()
        self._remember = remember

    def __len__(self) -> int:
        return len(self._nodes)

    def roots(self) -> Iterator[Node]:
        return iter(self._roots.values())

    def nodes(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def get(self, key: bytes) -> Node | None:
        return self._nodes.get(key)

    def evicted(self, key: bytes) -> tuple[int, bool] | None:
        """The clock when the page of that key was evicted and whether a pin on it had run out, if that is remembered."""
        return self._evicted.get(key)

    # -- lookup ---------------------------------------------------------------------------------------------------

    def match(self, tokens: PagedTokens, limit: int) -> Match:
        """The longest beginning of ``tokens[:limit]`` that the tree holds.  Changes nothing.

        Whole pages are compared token by token, whatever their key says.  O(pages matched).
        """
        size = self.page_size
        width = size * TOKEN_BYTES
        count = min(limit, len(tokens)) // size
        keys = tokens.keys(count)
        data = tokens.packed()
        nodes = self._nodes
        root = self._roots.get(tokens.root)
        if root is None:  # a namespace that nobody used; it becomes known when something in it is held
            return Match(Node(tokens.root, None, b"", -1), [])
        node = root
        pages: list[int] = []
        start = 0
        for index in range(count):
            child = nodes.get(keys[index])
            if child is None or child.parent is not node or child.tokens != data[start : start + width]:
                break
            pages.append(child.page)
            node = child
            start += width
        match = Match(node, pages)
        if node.children:
            rest = data[start : min(start + width, min(limit, len(tokens)) * TOKEN_BYTES)]
            match.partial, match.partial_tokens = _longest_common_beginning(node.children, rest)
        return match

    # -- holding --------------------------------------------------------------------------------------------------

    def hold(self, node: Node) -> None:
        """Keep ``node`` and everything above it.  O(nodes that were not held before)."""
        self.clock += 1
        node.used = self.clock
        while True:
            node.holders += 1
            if node.parent is None:
                self._roots.setdefault(node.key, node)
                return
            if node.holders > 1:
                return
            self.num_live += 1
            self.num_pinned -= node.pins > 0
            node = node.parent

    def hit(self, node: Node) -> None:
        """A prompt found ``node`` as the end of what it could reuse."""
        node.hits += 1
        self.touch(node)

    def release(self, node: Node) -> None:
        """One lease less ends at ``node``.  Whatever nobody holds any more may be evicted from now on."""
        self.clock += 1
        node.used = self.clock
        below: EvictionClass | None = None
        while True:
            node.holders -= 1
            if node.parent is None:
                self._forget_root(node)
                return
            if node.holders:
                return
            self.num_live -= 1
            self.num_pinned += node.pins > 0
            below = self._place_in_time(node, below)
            node = node.parent

    def _place_in_time(self, node: Node, below: EvictionClass | None) -> EvictionClass:
        """Queue a node of a chain that was just let go, going up; ``below`` is the class of the last one queued.

        The end of the chain gets its place in time, and so does each node above it that stands in a later class: when the
        class below has been emptied, that place says when the chain was last used.
        """
        own = node.eviction_class
        if node.pins or (below is not None and own <= below):
            return own if below is None else below
        node.used = self.clock
        self.queue.touch(node)
        return own

    def pin(self, node: Node) -> None:
        """Keep ``node`` and everything above it until ``unpin``; may be called several times."""
        at: Node | None = node
        while at is not None and at.parent is not None:
            at.pins += 1
            if at.pins > 1:
                return
            self.num_with_pin += 1
            self.num_pinned += at.holders == 0
            at = at.parent

    def unpin(self, node: Node, *, lapsed: bool) -> None:
        """One pin less; what nobody keeps any more may be evicted, as if it had just been used.

        Args:
            lapsed: the pin ran out or made room, it was not given back.
        """
        self.clock += 1
        below: EvictionClass | None = None
        at: Node | None = node
        while at is not None and at.parent is not None:
            at.pins -= 1
            if at.pins:
                return
            at.lapsed |= lapsed
            self.num_with_pin -= 1
            if at.holders == 0:
                self.num_pinned -= 1
                below = self._place_in_time(at, below)
            at = at.parent

    def touch(self, node: Node) -> None:
        """Make ``node`` the most recently used of its class, if it can be evicted at all."""
        if node in self.queue:
            self.clock += 1
            node.used = self.clock
            self.queue.touch(node)

    def _forget_root(self, root: Node) -> None:
        if not root.holders and not root.children:
            self._roots.pop(root.key, None)

    # -- publishing and evicting ----------------------------------------------------------------------------------

    def insert(self, parent: Node, key: bytes, tokens: bytes, page: int, *, output: bool) -> Node | None:
        """Publish ``page`` under ``parent``, which must be held.

        Returns:
            The new node; or the node that was there already with the same tokens (its ``page`` differs from the one
            given: a twin); or ``None`` when another page has the same key (a collision: the page stays unpublished).
        """
        known = self._nodes.get(key)
        if known is not None:
            return known if known.parent is parent and known.tokens == tokens else None
        node = Node(key, parent, tokens, page, output=output, tail=len(tokens) < self.page_size * TOKEN_BYTES)
        self._nodes[key] = node
        self._evicted.pop(key, None)
        children = parent.children
        children.insert(bisect_left(children, tokens, key=_BY_TOKENS), node)
        return node

    def covers(self, parent: Node, tokens: bytes) -> bool:
        """Whether a child of ``parent`` begins with ``tokens``: then a tail of these tokens would add nothing."""
        place = bisect_left(parent.children, tokens, key=_BY_TOKENS)
        return place < len(parent.children) and parent.children[place].tokens.startswith(tokens)

    def superseded(self, node: Node) -> Node | None:
        """The tail beside ``node`` that is a mere beginning of it, if there is one that can go.

        A beginning stands right before what it begins, so only one neighbour is looked at.
        """
        assert node.parent is not None
        siblings = node.parent.children
        place = bisect_left(siblings, node.tokens, key=_BY_TOKENS)
        before = siblings[place - 1] if place else None
        return before if before and before.evictable and node.tokens.startswith(before.tokens) else None

    def evict(self) -> Node | None:
        """Take the next leaf out of the tree; its page is the caller's.  ``None`` when everything is held."""
        node = self.queue.pop()
        if node is not None:
            self._take_out(node)
        return node

    def remove(self, node: Node) -> None:
        """Take one evictable leaf out of the tree; its page is the caller's."""
        self.queue.discard(node)
        self._take_out(node)

    def _take_out(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None  # roots are never queued
        del self._nodes[node.key]
        siblings = parent.children
        del siblings[bisect_left(siblings, node.tokens, key=_BY_TOKENS)]
        self._evicted[node.key] = (self.clock, node.lapsed)
        if len(self._evicted) > self._remember:
            self._evicted.popitem(last=False)
        if parent.is_root:
            self._forget_root(parent)
            return
        # What was known of the child's use is now known of its parent's.
        parent.hits = max(parent.hits, node.hits)
        parent.used = max(parent.used, node.used)
        if parent.evictable:
            self.queue.enter_oldest(parent)

    # -- checks ---------------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """What is broken, in sentences; empty when all is well.  O(n)."""
        faults = []
        live = pinned = 0
        for key, node in self._nodes.items():
            parent = node.parent
            if parent is None:
                faults.append(f"{node} is a root but is indexed as a page")
                continue
            if not parent.is_root and self._nodes.get(parent.key) is not parent:
                faults.append(f"the parent of {node} has left the tree: not prefix-closed")
            if sum(child is node for child in parent.children) != 1:
                faults.append(f"{node} is not exactly once among its parent's children")
            if node.key != key or page_key(parent.key, node.tokens) != key:
                faults.append(f"the tokens of {node} do not hash to its key")
            live += node.holders > 0
            pinned += node.pins > 0 and not node.holders
            if node.tail and node.children:
                faults.append(f"{node} is only partly filled but has children")
            held_children = sum(child.holders > 0 for child in node.children)
            if node.holders < held_children:
                faults.append(f"{node} has fewer holders than held children ({held_children})")
            if node.evictable and node not in self.queue:
                faults.append(f"{node} is an unheld leaf that cannot be evicted")
        if (live, pinned) != (self.num_live, self.num_pinned):
            faults.append(
                f"{live} nodes are held and {pinned} pinned, the counters say {self.num_live} and {self.num_pinned}"
            )
        faults += [
            f"{node} is queued but not in the tree"
            for node in self.queue.nodes()
            if self._nodes.get(node.key) is not node
        ]
        faults += [
            f"root {root} is empty and unheld" for root in self.roots() if not root.children and not root.holders
        ]
        return faults


def _longest_common_beginning(children: list[Node], rest: bytes) -> tuple[Node | None, int]:
    """The child that shares the most leading tokens with ``rest`` (packed ids), and how many.

    Among ordered strings, the longest common beginning with a given one is always found at one of its two neighbours.
    """
    best: Node | None = None
    most = 0
    place = bisect_left(children, rest, key=_BY_TOKENS)
    for child in children[max(0, place - 1) : place + 1]:
        common = _common_tokens(child.tokens, rest)
        if common > most:
            best, most = child, common
    return best, most


def _common_tokens(a: bytes, b: bytes) -> int:
    length = min(len(a), len(b)) // TOKEN_BYTES
    for index in range(length):
        start = index * TOKEN_BYTES
        if a[start : start + TOKEN_BYTES] != b[start : start + TOKEN_BYTES]:
            return index
    return length
