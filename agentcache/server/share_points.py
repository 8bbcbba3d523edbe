"""Where the sequences of a namespace stop being equal to a prompt: the places that page boundaries should fall on.

::

    this prompt    | page | page | p p p a a a | a a ...
    others         | page | page | p p p b b b | b b ...      share point: token 2 * page_size + 3, tail 3
                                   [tail]^

The ``tail`` tokens lie in a page that is not shared, because the sequences part inside it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from agentcache.cache.hashing import TOKEN_BYTES, pack_tokens
from agentcache.cache.tokens import PagedTokens
from agentcache.chat.text import common_length
from agentcache.errors import EngineStoppedError

if TYPE_CHECKING:
    from agentcache.cache.prefix_tree import Node, PrefixTree
    from agentcache.engine.loop import AsyncEngine

MAX_POINTS = 8
_LOOKED_AT = 64
"""Pages beside the prompt's own that are compared with it; those that are most like it come first."""
_LONG = 4096
"""Tokens; hashing fewer takes less time than handing them to another thread."""
_BY_TOKENS = attrgetter("tokens")


@dataclass(frozen=True, slots=True)
class Branch:
    """A place where the cache knows several pages that may follow the prompt's first ``start`` tokens."""

    start: int
    pages: tuple[bytes, ...]
    """Packed ids; the prompt's own page may be among them."""


def branches_of(tree: PrefixTree, tokens: PagedTokens) -> list[Branch]:
    """Where the tree branches along ``tokens``.  Changes nothing; O(branches).

    Runs between two steps, so the keys of a long prompt should be computed before.
    """
    deepest = _deepest(tree, tokens)
    nodes = [deepest, *(node for node in tree.branches_above(deepest) if node is not deepest)]
    starts = [(node, node.depth * tokens.page_size) for node in nodes]
    branches = [Branch(start, _most_alike(node, _page_at(tokens, start))) for node, start in starts]
    # A page found by its name alone counts only if it hangs from where this prompt begins.
    return branches if _top(deepest) is tree.match(tokens, 0).node else []


def _top(node: Node) -> Node:
    """The root above ``node``."""
    chain = node.chain
    while chain.parent is not None:
        chain = chain.parent
    assert chain.head is not None, "the topmost chain begins behind a root"
    return chain.head


def _deepest(tree: PrefixTree, tokens: PagedTokens) -> Node:
    """The last page of the prompt that the tree has; found by halving, as whatever is there has no gaps before it."""
    low, high = 0, tokens.num_full_pages
    while low < high:
        middle = (low + high + 1) // 2
        if tree.get(tokens.key(middle - 1)) is None:
            high = middle - 1
        else:
            low = middle
    found = tree.get(tokens.key(low - 1)) if low > tokens.num_public else None
    # Behind a public part the prompt's own namespace begins; of what others have there nothing may be seen.
    return tree.match(tokens, low * tokens.page_size).node if found is None else found


def _most_alike(node: Node, page: bytes) -> tuple[bytes, ...]:
    """Some of the pages that follow ``node``: neighbours in order share the longest beginnings."""
    place = bisect_left(node.children, page, key=_BY_TOKENS)
    near = node.children[max(0, place - _LOOKED_AT // 2) : place + _LOOKED_AT // 2]
    return tuple(child.tokens for child in near)


@dataclass(frozen=True, slots=True)
class SharePoint:
    """The first token that differs between a prompt and others in one of its pages.

    Attributes:
        token: where they part at several tokens of the page, the one where most do.
        partings: all of these tokens, and how many pages part there.
    """

    token: int
    partings: Mapping[int, int]

    def sharers(self, tokens: int) -> int:
        """How many of those that part in this page have the prompt's first ``tokens`` tokens."""
        return sum(count for token, count in self.partings.items() if token >= tokens)


def share_points_of(branches: Sequence[Branch], tokens: PagedTokens) -> list[SharePoint]:
    """A point for each page of the prompt in which others part from it, in order; of many pages, those where most do."""
    points: list[tuple[int, int, SharePoint]] = []
    for branch in branches:
        own = _page_at(tokens, branch.start)
        partings: Counter[int] = Counter()
        for page in branch.pages:
            common = common_length(own, page) // TOKEN_BYTES
            # Where one only goes on after the other has ended, nothing differs.
            if common * TOKEN_BYTES < min(len(own), len(page)):
                partings[common] += 1
        if partings:
            common, others = max(partings.items(), key=lambda entry: (entry[1], entry[0]))
            if token := branch.start + common:  # what begins differently shares nothing
                counts = {branch.start + at: count for at, count in partings.items()}
                points.append((others, token, SharePoint(token, counts)))
    points.sort(key=itemgetter(0, 1), reverse=True)
    return sorted((point for _, _, point in points[:MAX_POINTS]), key=attrgetter("token"))


def _page_at(tokens: PagedTokens, start: int) -> bytes:
    """Packed ids of the page that begins at ``start``; shorter at the end of the prompt."""
    return pack_tokens(tokens[start : start + tokens.page_size])


class ShareSearch:
    """Looks for share points while the request is on its way through the engine, so that no answer waits for it."""

    def __init__(self, engine: AsyncEngine, tokens: PagedTokens) -> None:
        self._engine = engine
        self._tokens = tokens
        self._task: asyncio.Task[list[SharePoint]] | None = None

    def start(self) -> None:
        """On the event loop, right after the request was submitted: others that run at the same time are not seen yet."""
        self._task = asyncio.ensure_future(self._search())

    async def found(self) -> list[SharePoint]:
        """In order; none where the search was not started or the engine has stopped."""
        return [] if self._task is None else await self._task

    def drop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _search(self) -> list[SharePoint]:
        tokens = self._tokens
        if len(tokens) - tokens.num_known > _LONG:
            await run_in_threadpool(tokens.keys, tokens.num_full_pages)
        try:
            branches = await self._engine.inspect(lambda manager: branches_of(manager.tree, tokens))
        except EngineStoppedError:
            return []
        return share_points_of(branches, tokens)
