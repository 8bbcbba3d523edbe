"""What a warm cache would hold after the requests seen so far, by the very tree that the server uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentcache.cache.hashing import namespace_root, pack_tokens, page_key
from agentcache.cache.prefix_tree import Node, PrefixTree
from agentcache.cache.tokens import PagedTokens

MAX_TOKENS = 4_000_000
"""Tokens that an index keeps; their pages take up to 0.2 GB of memory at 16 tokens a page."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """What a prompt finds.

    Attributes:
        tokens: prompt tokens that need no computing: whole pages, then the equal beginning of one more page; at least
            one token is always computed.
        owner: who last published the deepest page that was found, or ``None`` when nothing was.
        whole: what a cache finds that has whole pages only.
    """

    tokens: int
    owner: int | None
    whole: int = 0


class PrefixIndex:
    """A prefix tree that holds no keys or values, only who published what.

    The partly filled last page of a prompt is published too, as the server does: what goes on where it ends reuses it.
    Memory grows with the pages that differ, not with the prompts: a growing chat adds what is new in each turn.

    Args:
        page_size: tokens a page.
        max_tokens: how many tokens are kept; beyond that what was used longest ago goes, as on a server of that size.
    """

    def __init__(self, page_size: int, max_tokens: int = MAX_TOKENS) -> None:
        self.page_size = page_size
        self.forgotten = 0
        """Pages that were let go to stay within ``max_tokens``."""
        self._tree = PrefixTree(page_size)
        self._most = max(1, max_tokens // page_size)

    def match(self, tokens: PagedTokens) -> Reuse:
        """What ``tokens`` would find.  Changes nothing."""
        total = len(tokens)
        match = self._tree.match(tokens, total)
        found = match.pages[-1] if match.pages else None
        if match.partial is not None and match.partial_tokens:
            found = match.partial.page
        whole = len(match.pages) * self.page_size
        return Reuse(max(0, min(match.tokens(self.page_size), total - 1)), found, max(0, min(whole, total - 1)))

    def publish(self, tokens: PagedTokens, owner: int) -> None:
        """``owner`` (a number from 0) has computed ``tokens``."""
        count = tokens.num_full_pages
        keys = tokens.keys(count)
        node: Node = self._tree.match(tokens, 0).node
        if node.is_root and not node.children:
            self._tree.hold(node)  # a namespace becomes known by being held
        for index in range(count):
            child = self._tree.insert(node, keys[index], tokens.page_bytes(index), owner, output=False)
            if child is None:  # two pages with one hash: the server would stop publishing here as well
                return
            child.page = owner
            node = child
            self._drop_superseded(node)
        tail = pack_tokens(tokens[count * self.page_size : len(tokens)])
        if tail and not self._tree.covers(node, tail):
            leaf = self._tree.insert(node, page_key(node.key, tail), tail, owner, output=False)
            if leaf is not None:
                self._drop_superseded(leaf)
                node = leaf
        self._use(node)

    def _use(self, node: Node) -> None:
        """``node`` is the end of the latest prompt; the oldest ones make room."""
        if node.has_page:
            self._tree.hold(node)
            self._tree.release(node)
        while len(self._tree) > self._most and self._tree.evict() is not None:
            self.forgotten += 1

    def _drop_superseded(self, node: Node) -> None:
        if (shorter := self._tree.superseded(node)) is not None:
            self._tree.remove(shorter)


def predict_cached_tokens(prompts: Iterable[Sequence[int]], page_size: int) -> list[int]:
    """``cached_tokens`` that the server would report for each prompt, served one after another from an empty cache.

    Holds for a cache large enough to keep everything; what the model generates can only add to it.

    Args:
        prompts: token ids.
        page_size: tokens a page.
    """
    index = PrefixIndex(page_size)
    root = namespace_root()
    cached = []
    for prompt in prompts:
        tokens = PagedTokens(prompt, page_size, root)
        cached.append(index.match(tokens).tokens)
        index.publish(tokens, 0)
    return cached
