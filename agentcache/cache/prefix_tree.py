"""The index: a radix tree whose digits are whole pages.

::

    root(namespace) ── page ── page ── page          one node a page, keyed by the chained hash of everything up to its end
                        │         └─── page          (hashing.py); nodes never split, so a lookup never changes the tree
                        └─── page ── page

A node that a lease ends at is *held*, and so is everything above it: holding the end of a chain protects the whole chain,
and costs the same however long it is (chains.py).  A *pin* protects in the same way, but gives way when running requests
need the room.  What is neither held nor pinned may be evicted, leaves first (eviction.py).

The last page of a finished sequence is mostly not full.  It becomes a leaf too, a *tail*: nothing can follow it, but a prompt
that goes on where it ends copies its tokens instead of computing them.

Where a beginning is public and the rest is not, a *gate* stands between them, one for each namespace: it has no page, and
nothing of what is behind it can be found, not even in part, except through its own namespace::

    root(public) ── page ── page ──╢ gate(A) ── page ── page
                              └────╢ gate(B) ── page
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count as counting
from operator import attrgetter

from agentcache.cache.chains import Chain
from agentcache.cache.eviction import EvictionClass, EvictionQueue
from agentcache.cache.hashing import TOKEN_BYTES, page_key
from agentcache.cache.residency import DEVICE, Listener, PageLeft, arrived
from agentcache.cache.tokens import PagedTokens

_BY_TOKENS = attrgetter("tokens")


class Node:
    """One page of the index.

    Attributes:
        key: chained hash of everything up to the page's end; the key of its namespace for a root or a gate.
        tokens: packed ids of this page (``hashing.pack_tokens``), fewer than a page in a tail; empty for a root or a gate.
        page: number of the page that holds its keys and values; -1 for a root or a gate.
        depth: pages from the root to here, this one included.
        children: ordered by ``tokens``, so that the child with the longest common beginning is found by bisection.
        gates: gates that hang from it (they are not among its children).
        serial: number of this very node; no other in its tree has it.
        hits: prompts that ended here, or at a page below that has left.
        used: the tree's clock when it was used last.
        stored: the tiers' epoch when it was handed to them (``LowerTiers``); -1 before.
    """

    __slots__ = (
        "chain", "children", "depth", "gates", "hits", "key", "output", "page", "parent", "serial", "stored", "tail", "tokens",
        "used",
    )  # fmt: skip

    def __init__(
        self,
        key: bytes,
        parent: Node | None,
        tokens: bytes,
        page: int,
        *,
        output: bool = False,
        tail: bool = False,
        space: bytes | None = None,
    ) -> None:
        self.key = key
        self.parent = parent
        self.serial = -1
        self.tokens = tokens
        self.page = page
        self.children: list[Node] = []
        self.gates = 0
        self.hits = 0
        self.output = output
        self.tail = tail
        self.stored = -1
        self.used = 0
        self.depth: int = (0 if parent is None else parent.depth) + (page >= 0)
        self.chain = self._join_chain(space or key)

    def _join_chain(self, space: bytes) -> Chain:
        """Go on with the parent's chain, or begin one: behind a root or a gate, beside a sibling, or for a tail, which
        would only be in the way of the page that it becomes."""
        parent = self.parent
        if parent is None or self.page < 0:
            return Chain(self, None if parent is None else parent.chain, self.depth, space)
        chain = parent.chain
        if self.tail or chain.end != parent.depth:
            chain.branch_off(parent, 1)
            chain = Chain(None, chain, parent.depth, chain.space)
        chain.end = self.depth
        return chain

    @property
    def is_root(self) -> bool:
        return self.parent is None

    @property
    def has_page(self) -> bool:
        """Whether it is neither a root nor a gate."""
        return self.page >= 0

    @property
    def held(self) -> bool:
        """Whether a lease ends here or below."""
        return self.depth <= self.chain.leases.reach

    @property
    def pinned(self) -> bool:
        """Whether a pin ends here or below."""
        return self.depth <= self.chain.pins.reach

    @property
    def lapsed(self) -> bool:
        """Whether a pin on it ran out."""
        after, upto = self.chain.lapsed
        return after < self.depth <= upto

    @property
    def eviction_class(self) -> EvictionClass:
        if self.hits >= 2:
            return EvictionClass.SHARED
        if self.tail and not self.hits:
            return EvictionClass.TAIL
        return EvictionClass.OUTPUT if self.output and not self.hits else EvictionClass.ONCE

    @property
    def evictable(self) -> bool:
        return not self.children and not self.gates and not self.chain.keeps(self.depth) and self.page >= 0

    def path(self) -> list[Node]:
        """Its pages from the first one to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None:
            if node.has_page:
                nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes

    def __repr__(self) -> str:
        return f"Node(page={self.page}, depth={self.depth}, children={len(self.children)}, hits={self.hits})"


@dataclass(frozen=True, slots=True)
class OpenPage:
    """A page that a running sequence is still filling; ``tokens`` are the packed ids of what it holds by now."""

    page: int
    tokens: bytes
    tail: bool = True


@dataclass(slots=True)
class Match:
    """What the tree knows of a prompt.

    ::

        prompt:  | page | page | page | p p . . |            pages = 3, partial_tokens = 2: a fourth page begins
                 [ ------ equal ----------- ]                with the same two tokens
    """

    node: Node
    pages: list[int]
    partial: Node | OpenPage | None = None
    partial_tokens: int = 0

    def tokens(self, page_size: int) -> int:
        return len(self.pages) * page_size + self.partial_tokens


class PrefixTree:
    """All namespaces' pages by key.

    Args:
        page_size: tokens a page.
        remember: how many evicted keys to remember, so that a later miss can say ``evicted``.
        by_space: whether ``evict`` can be asked for a page of one namespace.
    """

    def __init__(self, page_size: int, remember: int = 1024, *, by_space: bool = False) -> None:
        self.page_size = page_size
        self.queue = EvictionQueue(by_space=by_space)
        self.sizes: Counter[bytes] = Counter()
        """Pages by namespace."""
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
        self._gates: dict[bytes, Node] = {}
        self._evicted: OrderedDict[bytes, tuple[int, bool]] = OrderedDict()
        self.flushed_at = -1
        """The clock when everything was last dropped by order, rather than to make room."""
        self.listener: Listener | None = None
        self._remember = remember
        self._serials = counting()

    def __len__(self) -> int:
        return len(self._nodes)

    def roots(self) -> Iterator[Node]:
        return iter(self._roots.values())

    def gates(self) -> Iterator[Node]:
        return iter(self._gates.values())

    def nodes(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def get(self, key: bytes) -> Node | None:
        return self._nodes.get(key)

    def evicted(self, key: bytes) -> tuple[int, bool] | None:
        """The clock when the page of that key was evicted and whether a pin on it had run out, if that is remembered."""
        return self._evicted.get(key)

    @property
    def forgets(self) -> bool:
        """Whether more was evicted than is remembered."""
        return len(self._evicted) >= self._remember

    # -- lookup ---------------------------------------------------------------------------------------------------

    def match(self, tokens: PagedTokens, limit: int) -> Match:
        """The longest beginning of ``tokens[:limit]`` that the tree holds.  Changes nothing.

        Whole pages are compared token by token, whatever their key says.  O(pages matched).
        """
        end = min(limit, len(tokens))
        count = end // self.page_size
        keys = tokens.keys(count)
        node, pages = self._start(tokens, count)
        split = tokens.num_public
        if node.depth < split:
            stop = min(split, count)
            node = self._walk(node, pages, keys[node.depth : stop], tokens.packed(node.depth * self.page_size))
        if node.depth == split and node.has_page:
            gate = self._gates.get(tokens.gate_key)
            if gate is None:  # what else follows here is of other namespaces
                return Match(node, pages)
            node = gate
        data = tokens.packed(node.depth * self.page_size)
        first = node.depth
        if first >= split:
            node = self._walk(node, pages, keys[first:count], data)
        match = Match(node, pages)
        if node.children:
            start = (node.depth - first) * self.page_size
            stop = min(start + self.page_size, end - first * self.page_size)
            rest = data[start * TOKEN_BYTES : stop * TOKEN_BYTES]
            match.partial, match.partial_tokens = _longest_common_beginning(node.children, rest)
        return match

    def _start(self, tokens: PagedTokens, count: int) -> tuple[Node, list[int]]:
        """Where a walk over ``count`` pages begins, and the pages up to there: where the last one ended, or at the top."""
        trail = tokens.trail
        node = None if trail is None else self._nodes.get(trail.key)
        if trail is not None and node is not None and node.serial == trail.serial:
            # Only leaves leave the tree, so everything above is there as well, and its tokens were compared before.
            while node.parent is not None and (node.depth > min(count, len(trail.pages)) or not node.has_page):
                node = node.parent
            return node, trail.pages[: node.depth]
        root = self._roots.get(tokens.top)
        # A namespace that nobody used becomes known when something in it is held.
        return root or Node(tokens.top, None, b"", -1), []

    def _walk(self, node: Node, pages: list[int], keys: list[bytes], data: bytes) -> Node:
        """Go down from ``node`` by ``keys`` while their pages are there and hold the tokens of ``data``."""
        width = self.page_size * TOKEN_BYTES
        nodes = self._nodes
        start = 0
        for key in keys:
            child = nodes.get(key)
            if child is None or child.parent is not node or child.tokens != data[start : start + width]:
                break
            pages.append(child.page)
            node = child
            start += width
        return node

    def branches_above(self, node: Node) -> Iterator[Node]:
        """Nodes between ``node`` and its root or gate, themselves included, that several pages follow; the last one first.

        O(branches), however far apart they are.
        """
        for chain, depth in _upwards(node):
            found = [at for at in chain.branches if at.depth <= depth and len(at.children) > 1]
            yield from sorted(found, key=lambda at: at.depth, reverse=True)
            if chain.head is not None:
                return

    # -- holding --------------------------------------------------------------------------------------------------

    def hold(self, node: Node) -> None:
        """Keep ``node`` and everything above it.  O(branches above it)."""
        self.clock += 1
        node.used = self.clock
        for chain, depth in _upwards(node):
            known = bool(chain.leases)
            before = chain.num_live, chain.num_pinned
            chain.leases.add(depth)
            self._recount(chain, *before)
            if known:
                return
            if chain.parent is None:
                assert chain.head is not None
                self._roots.setdefault(chain.head.key, chain.head)

    def hit(self, node: Node) -> None:
        """A prompt found ``node`` as the end of what it could reuse."""
        node.hits += 1
        self.touch(node)

    def release(self, node: Node) -> None:
        """One lease less ends at ``node``.  Whatever nobody holds any more may be evicted from now on."""
        self.clock += 1
        node.used = self.clock
        for chain, depth in _upwards(node):
            before = chain.num_live, chain.num_pinned
            chain.leases.remove(depth)
            self._recount(chain, *before)
            if chain.leases:
                break
            if chain.head is not None:
                self._forget_empty(chain.head)
        self._queue(node if node.has_page else node.parent)

    def _queue(self, node: Node | None) -> None:
        """Give a node that was let go its place in time, unless something still keeps it."""
        if node is not None and node.has_page and not node.chain.keeps(node.depth):
            self.queue.touch(node)

    def _recount(self, chain: Chain, live: int, pinned: int) -> None:
        self.num_live += chain.num_live - live
        self.num_pinned += chain.num_pinned - pinned

    def unheld(self, node: Node) -> tuple[int, int]:
        """How many pages a hold on ``node`` would take out of what can be evicted, and out of what is only pinned."""
        unkept = pinned = 0
        for chain, depth in _upwards(node):
            reach = chain.leases.reach
            if depth > reach:
                both = min(depth, chain.pins.reach)
                pinned += max(0, both - reach)
                unkept += depth - max(reach, both)
            if chain.leases:
                break
        return unkept, pinned

    def pin(self, node: Node) -> None:
        """Keep ``node`` and everything above it until ``unpin``; may be called several times.  O(branches above it)."""
        for chain, depth in _upwards(node):
            known = bool(chain.pins)
            kept, before = chain.num_with_pin, (chain.num_live, chain.num_pinned)
            chain.pins.add(depth)
            self.num_with_pin += chain.num_with_pin - kept
            self._recount(chain, *before)
            if known:
                return

    def unpin(self, node: Node, *, lapsed: bool) -> None:
        """One pin less; what nobody keeps any more may be evicted, as if it had just been used.

        Args:
            lapsed: the pin ran out or made room, it was not given back.
        """
        self.clock += 1
        node.used = self.clock
        for chain, depth in _upwards(node):
            reach, kept, before = chain.pins.reach, chain.num_with_pin, (chain.num_live, chain.num_pinned)
            chain.pins.remove(depth)
            self.num_with_pin += chain.num_with_pin - kept
            self._recount(chain, *before)
            if lapsed and chain.pins.reach < reach:
                chain.pin_ran_out(chain.pins.reach, reach)
            if chain.pins:
                break
        self._queue(node)

    def touch(self, node: Node) -> None:
        """Make ``node`` the most recently used of its class; if it cannot be evicted yet, then from when it can be."""
        self.clock += 1
        node.used = self.clock
        if node in self.queue:
            self.queue.touch(node)

    def _forget_empty(self, head: Node) -> None:
        """Let a root or a gate go when nothing is behind it and nobody is on his way to put something there."""
        if head.children or head.gates or head.chain.leases or head.chain.pins:
            return
        if head.parent is None:
            self._roots.pop(head.key, None)
        elif self._gates.pop(head.key, None) is not None:
            head.parent.gates -= 1

    def enter(self, node: Node, tokens: PagedTokens) -> Node:
        """Where the next page of ``tokens`` goes in when its pages so far end at ``node``: behind a gate where the public
        part ends, and there only.  What is given back is to be held at once."""
        if not tokens.num_public or node.depth != tokens.num_public or not node.has_page:
            return node
        gate = self._gates.get(tokens.gate_key)
        if gate is None:
            gate = self._gates[tokens.gate_key] = Node(tokens.gate_key, node, b"", -1, space=tokens.root)
            node.gates += 1
        return gate

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
        node.serial = next(self._serials)
        self._nodes[key] = node
        self.sizes[node.chain.space] += 1
        self._evicted.pop(key, None)
        children = parent.children
        children.insert(bisect_left(children, tokens, key=_BY_TOKENS), node)
        if self.listener is not None and not node.tail:
            self.listener(arrived(node))
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
        if len(siblings) == 1:
            return None
        place = bisect_left(siblings, node.tokens, key=_BY_TOKENS)
        before = siblings[place - 1] if place else None
        return before if before and before.evictable and node.tokens.startswith(before.tokens) else None

    def evict(self, space: bytes | None = None) -> Node | None:
        """Take the next leaf (of one namespace) out of the tree; its page is the caller's.  ``None`` when all is held."""
        node = self.queue.pop(space)
        if node is not None:
            self._take_out(node, in_order=space is None)
        return node

    def remove(self, node: Node) -> None:
        """Take one evictable leaf out of the tree; its page is the caller's."""
        self.queue.discard(node)
        self._take_out(node, in_order=False)

    def _take_out(self, node: Node, *, in_order: bool) -> None:
        """
        Args:
            in_order: it was the next of all to go.
        """
        parent = node.parent
        assert parent is not None  # roots are never queued
        left = node.eviction_class
        del self._nodes[node.key]
        if self.listener is not None and not node.tail:
            self.listener(PageLeft(node.key, DEVICE))
        self.sizes[node.chain.space] -= 1
        if not self.sizes[node.chain.space]:
            del self.sizes[node.chain.space]
        siblings = parent.children
        del siblings[bisect_left(siblings, node.tokens, key=_BY_TOKENS) if len(siblings) > 1 else 0]
        self._evicted[node.key] = (self.clock, node.lapsed)
        if len(self._evicted) > self._remember:
            self._evicted.popitem(last=False)
        chain = node.chain
        chain.forget(node.depth)
        if chain.head is None and chain.end == chain.base:
            parent.chain.branch_off(parent, -1)
        above: Node | None = parent
        if not parent.has_page:
            self._forget_empty(parent)
            above = parent.parent
        if above is None:
            return
        # What was known of the child's use is now known of its parent's.
        above.hits = max(above.hits, node.hits)
        oldest = in_order and above.used <= node.used and above.eviction_class is left
        above.used = max(above.used, node.used)
        if above.evictable:
            self.queue.enter(above, oldest=oldest)

    # -- checks ---------------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """What is broken, in sentences; empty when all is well.  O(n)."""
        faults: list[str] = []
        live = pinned = 0
        everybody = (*self.roots(), *self.gates(), *self._nodes.values())
        listed = Counter((id(head), id(child)) for head in everybody for child in head.children)
        for key, node in self._nodes.items():
            faults += self._check_node(key, node, listed)
            live += node.held
            pinned += node.pinned and not node.held
        if (live, pinned) != (self.num_live, self.num_pinned):
            faults.append(
                f"{live} nodes are held and {pinned} pinned, the counters say {self.num_live} and {self.num_pinned}"
            )
        faults += [
            f"{node} is queued but not in the tree"
            for node in self.queue.nodes()
            if self._nodes.get(node.key) is not node
        ]
        if self.sizes != Counter(node.chain.space for node in self._nodes.values()):
            faults.append(f"the namespaces do not have {dict(self.sizes)} pages")
        faults += [
            f"{head} is empty and unheld"
            for head in (*self.roots(), *self.gates())
            if not (head.children or head.gates or head.chain.leases)
        ]
        faults += [
            f"{node} is not known to branch"
            for node in everybody
            if len(node.children) > 1 and node not in node.chain.branches
        ]
        gates = Counter(gate.parent for gate in self.gates())
        faults += [
            f"{node} should have {gates[node]} gates, not {node.gates}"
            for node in (*self._nodes.values(), *self.roots())
            if node.gates != gates[node]
        ]
        return faults

    def _check_node(self, key: bytes, node: Node, listed: Mapping[tuple[int, int], int]) -> Iterator[str]:
        """``listed``: how often each (parent, child), by identity, is among the parent's children."""
        parent = node.parent
        if parent is None:
            yield f"{node} is a root but is indexed as a page"
            return
        if parent.has_page and self._nodes.get(parent.key) is not parent:
            yield f"the parent of {node} has left the tree: not prefix-closed"
        if listed[id(parent), id(node)] != 1:
            yield f"{node} is not exactly once among its parent's children"
        if node.key != key or page_key(parent.key, node.tokens) != key:
            yield f"the tokens of {node} do not hash to its key"
        if node.tail and (node.children or node.gates):
            yield f"{node} is only partly filled but something follows it"
        if node.depth != parent.depth + 1 or not node.chain.base < node.depth <= node.chain.end:
            yield f"{node} is not where its chain says"
        if node.evictable and node not in self.queue:
            yield f"{node} is an unheld leaf that cannot be evicted"


def _upwards(node: Node) -> Iterator[tuple[Chain, int]]:
    """The chains from ``node`` up to its root, each with the depth at which the path goes through it."""
    chain, depth = node.chain, node.depth
    while True:
        yield chain, depth
        if chain.parent is None:
            return
        chain, depth = chain.parent, chain.base


def _longest_common_beginning(children: list[Node], rest: bytes) -> tuple[Node | None, int]:
    """The child that shares the most leading tokens with ``rest`` (packed ids), and how many.

    Among ordered strings, the longest common beginning with a given one is always found at one of its two neighbours.
    """
    best: Node | None = None
    most = 0
    place = bisect_left(children, rest, key=_BY_TOKENS)
    for child in children[max(0, place - 1) : place + 1]:
        common = common_tokens(child.tokens, rest)
        if common > most:
            best, most = child, common
    return best, most


def common_tokens(a: bytes, b: bytes) -> int:
    """How many packed ids both begin with."""
    length = min(len(a), len(b)) // TOKEN_BYTES
    for index in range(length):
        start = index * TOKEN_BYTES
        if a[start : start + TOKEN_BYTES] != b[start : start + TOKEN_BYTES]:
            return index
    return length
