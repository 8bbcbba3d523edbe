"""The prefix tree as its owners may see it: their own namespaces, chains drawn as one run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from agentcache.cache.hashing import TOKEN_BYTES, unpack_tokens
from agentcache.cache.manager import CacheManager
from agentcache.cache.prefix_tree import Node

MAX_NODES = 2_000
MAX_PAGES = 50_000
"""Pages that ``runs_of`` looks at; the engine waits meanwhile."""
_PREVIEW_TOKENS = 24
_HEAD_PAGES = 3
"""Pages at a run's beginning whose tokens are kept."""


@dataclass(slots=True, eq=False)
class Run:
    """Pages that follow each other up to where the tree branches.

    ::

        page ─ page ─ page ─┬─ page ─ tail          three runs: the second and third have the first as parent
                            └─ page
                    live │ pinned │ cached          who needs a page needs all above it, so states never mix

    Attributes:
        parent: the run that it follows; ``None`` behind a root or a gate.
        root: its namespace.
        start: the first token's place in the prompts that go through here.
        keys: names of its pages.
        head, last: packed tokens of its first few pages, and of its last one.
        live, pinned: how many of its pages are in that state; the rest is plain cache.
        hits: prompts whose cached part ended at one of its pages, most at a page and in all.
        used: the tree's clock when a page of it was used last.
    """

    number: int
    parent: Run | None
    root: bytes
    start: int
    keys: list[bytes] = field(default_factory=list)
    head: bytes = b""
    last: bytes = b""
    tokens: int = 0
    live: int = 0
    pinned: int = 0
    most_hits: int = 0
    hits: int = 0
    used: int = 0
    children: list[Run] = field(default_factory=list)

    @property
    def pages(self) -> int:
        return len(self.keys)

    @property
    def beginning(self) -> list[int]:
        """The first few token ids."""
        return list(unpack_tokens(self.head[: _PREVIEW_TOKENS * TOKEN_BYTES]))

    def to_json(self, text: str) -> dict[str, Any]:
        return {
            "id": self.number,
            "parent": None if self.parent is None else self.parent.number,
            "start": self.start,
            "tokens": self.tokens,
            "pages": self.pages,
            "live": self.live,
            "pinned": self.pinned,
            "hits": self.most_hits,
            "state": "live" if self.live else "pinned" if self.pinned else "cached",
            "text": text,
        }


class Survey:
    """A walk over the namespaces ``roots`` that goes on where it was, so that nobody waits for the whole of it.

    Between two calls of ``advance`` the tree may change.  What was walked over already is shown as it was then; what has
    left meanwhile is not walked into.  On a tree that rests, the figures are exact.
    """

    def __init__(self, manager: CacheManager, roots: Collection[bytes]) -> None:
        self.runs: list[Run] = []
        """Parents first."""
        self.pages = 0
        self._size = manager.page_size
        # What is behind a public part begins where that ends, and shows no more of it than its length.
        heads = [*manager.tree.roots(), *manager.tree.gates()]
        self._waiting: list[tuple[Node, Run | None, bytes]] = [
            (child, None, head.chain.space) for head in heads if head.chain.space in roots for child in head.children
        ]
        self._waiting.reverse()
        self._open: Run | None = None
        """A run that the last call ended inside of, at the node that is next."""

    @property
    def done(self) -> bool:
        return not self._waiting

    def advance(self, manager: CacheManager, pages: int, runs: int | None = None) -> bool:
        """Walk over ``pages`` pages more, and to at most ``runs`` runs in all; whether that was the end.

        Changes nothing.  On the engine's thread.
        """
        stop = self.pages + pages
        get = manager.tree.get
        while self._waiting and self.pages < stop and (runs is None or len(self.runs) < runs or self._open is not None):
            node, above, root = self._waiting.pop()
            if get(node.key) is not node:  # it left between two calls
                self._open = None
                continue
            run = self._open or self._begin(node, above, root)
            self._open = None
            end = self._follow(run, node, stop - self.pages)
            if len(end.children) == 1:  # stopped in the middle
                self._open = run
                self._waiting.append((end.children[0], above, root))
            else:
                self._waiting += [(child, run, root) for child in reversed(end.children)]
        return self.done

    def _begin(self, node: Node, above: Run | None, root: bytes) -> Run:
        start = (node.depth - 1) * self._size
        run = Run(len(self.runs), above, root, start, head=_beginning_of(node))
        self.runs.append(run)
        if above is not None:
            above.children.append(run)
        return run

    def _follow(self, run: Run, node: Node, limit: int) -> Node:
        """Add to ``run`` what follows from ``node`` on without a branch; the last page that was added.

        Millions of pages go through here: a few loads a page, and nothing that calls.
        """
        first, count, keys = node, 0, run.keys
        hits, most, used = run.hits, run.most_hits, run.used
        while True:
            count += 1
            keys.append(node.key)
            if node.hits:
                hits += node.hits
                if node.hits > most:  # noqa: PLR1730
                    most = node.hits
            if node.used > used:  # noqa: PLR1730
                used = node.used
            children = node.children
            if len(children) != 1 or count >= limit:
                break
            node = children[0]
        run.hits, run.most_hits, run.used = hits, most, used
        run.last = node.tokens
        run.tokens += (count - 1) * self._size + len(node.tokens) // TOKEN_BYTES
        self.pages += count
        _count_states(run, first, node)
        return node


def _count_states(run: Run, first: Node, last: Node) -> None:
    """A lease or a pin reaches down to a depth of its chain.  Pages without a branch may still be of several chains: a
    sibling that left does not change the chain of those that stay."""
    node, low = last, first.depth - 1
    while True:
        chain = node.chain
        base, depth = max(low, chain.base), node.depth
        leased, pinned = chain.leases.reach, chain.pins.reach
        live = max(0, min(depth, leased) - base)
        run.live += live
        run.pinned += max(0, min(depth, pinned) - max(base, min(depth, leased)))
        if chain.base <= low or chain.parent is None:
            return
        while node.depth > base:  # rare, and as long as the chain's part of the run
            assert node.parent is not None, "a run ends below its head"
            node = node.parent


def _beginning_of(node: Node) -> bytes:
    tokens = [node.tokens]
    while len(node.children) == 1 and len(tokens) < _HEAD_PAGES:
        node = node.children[0]
        tokens.append(node.tokens)
    return b"".join(tokens)


def runs_of(manager: CacheManager, roots: Collection[bytes], limit: int = MAX_NODES) -> tuple[list[Run], bool]:
    """What is cached under ``roots``, parents first, and whether some was left out.  Changes nothing."""
    survey = Survey(manager, roots)
    done = survey.advance(manager, MAX_PAGES, limit)
    return survey.runs, not done
