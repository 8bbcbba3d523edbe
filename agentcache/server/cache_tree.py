"""The prefix tree as its owners may see it: their own namespaces, chains drawn as one node."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from agentcache.cache.hashing import unpack_tokens
from agentcache.cache.manager import CacheManager
from agentcache.cache.prefix_tree import Node

MAX_NODES = 2_000
MAX_PAGES = 50_000
"""Pages that are looked at; the engine waits meanwhile."""
_PREVIEW_TOKENS = 24


@dataclass(slots=True)
class Run:
    """Pages that follow each other, up to where the tree branches or their state changes.

    ::

        page ─ page ─ page ─┬─ page ─ tail          three runs: the second and third have the first as parent
                            └─ page
    """

    number: int
    parent: int | None
    root: bytes
    state: str
    start: int
    """The first token's place in the prompts that go through here."""
    pages: list[int] = field(default_factory=list)
    tokens: int = 0
    hits: int = 0
    beginning: list[int] = field(default_factory=list)
    """The first few token ids."""

    def to_json(self, text: str) -> dict[str, Any]:
        return {
            "id": self.number,
            "parent": self.parent,
            "start": self.start,
            "tokens": self.tokens,
            "pages": len(self.pages),
            "hits": self.hits,
            "state": self.state,
            "text": text,
        }


def runs_of(manager: CacheManager, roots: Collection[bytes], limit: int = MAX_NODES) -> tuple[list[Run], bool]:
    """What is cached under ``roots``, parents first, and whether some was left out.  Changes nothing."""
    runs: list[Run] = []
    looked = 0
    # What is behind a public part begins where that ends, and shows no more of it than its length.
    heads = [*manager.tree.roots(), *manager.tree.gates()]
    waiting: list[tuple[Node, int | None, int, bytes]] = [
        (child, None, head.depth * manager.page_size, head.chain.space)
        for head in heads
        if head.chain.space in roots
        for child in head.children
    ]
    waiting.reverse()
    while waiting:
        if len(runs) >= limit or looked >= MAX_PAGES:
            return runs, True
        node, parent, start, root = waiting.pop()
        run = Run(len(runs), parent, root, _state(node), start)
        runs.append(run)
        while True:
            ids = unpack_tokens(node.tokens)
            run.beginning += ids[: max(0, _PREVIEW_TOKENS - len(run.beginning))]
            run.pages.append(node.page)
            run.tokens += len(ids)
            run.hits = max(run.hits, node.hits)
            looked += 1
            if len(node.children) != 1 or _state(node.children[0]) != run.state or looked >= MAX_PAGES:
                break
            node = node.children[0]
        end = start + run.tokens
        waiting += [(child, run.number, end, root) for child in reversed(node.children)]
    return runs, False


def _state(node: Node) -> str:
    if node.held:
        return "live"
    return "pinned" if node.pinned else "cached"
