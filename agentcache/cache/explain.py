"""Why a prompt was not cached further than it was."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from agentcache.cache.hashing import TOKEN_BYTES, unpack_tokens
from agentcache.cache.prefix_tree import OpenPage

if TYPE_CHECKING:
    from agentcache.cache.prefix_tree import Match, Node, PrefixTree
    from agentcache.cache.tokens import PagedTokens

_SHOWN = 16
"""Tokens that a miss quotes of either side."""
_BRANCHES = 4
_BRANCH_TOKENS = 2048
_BRANCH_PAGES = 128
_LOOKED_AT = 256
"""Pages that follow a match, of which those that were used last are looked into."""


@dataclass(frozen=True, slots=True)
class Miss:
    """The reason, and the first token that it concerns.

    ``code`` is one of: ``cold`` (nothing like it was seen), ``below_page`` (all that is left is shorter than a page),
    ``diverged`` (the cache knows this beginning with another continuation), ``evicted`` (the page was here and made room),
    ``expired`` (the same, after a pin on it ran out), ``disabled`` (the prefix cache is off, or the request asks for figures
    that need every position computed).
    """

    code: str
    at_token: int
    detail: str
    message_index: int | None = None
    path: str | None = None
    was: str | None = None
    now: str | None = None
    was_tokens: tuple[int, ...] = ()
    """What the cache holds from ``at_token`` on (a few tokens), where the prompt goes on differently."""
    now_tokens: tuple[int, ...] = ()
    """What the prompt holds there."""
    branches: tuple[bytes, ...] = field(default=(), repr=False)
    """Some of what the cache holds instead, as packed ids from ``branch_start`` on; the branch most like the prompt first."""
    branch_start: int = 0
    gone_tokens: int = 0
    """Of ``evicted`` and ``expired``: tokens from ``at_token`` on that were cached once, as far as is remembered."""
    gone_all: bool = True
    """Whether that is all of them."""
    flushed: bool = False
    """They were dropped because somebody said so."""

    def to_json(self) -> dict[str, Any]:
        """As HTTP shows it: texts, not tokens."""
        return {
            "code": self.code,
            "at_token": self.at_token,
            "detail": self.detail,
            "message_index": self.message_index,
            "path": self.path,
            "was": self.was,
            "now": self.now,
        }


def explain(tree: PrefixTree, tokens: PagedTokens, match: Match, *, below: int, tails: bool) -> Miss | None:
    """Why ``match`` ends where it ends; ``None`` when all that can be reused was (all but the last token).

    Args:
        below: pages behind the match that come back from a lower tier.
        tails: whether pages that are only partly filled are kept.
    """
    size, total, depth = tree.page_size, len(tokens), len(match.pages) + below
    at = depth * size if below else match.tokens(size)
    if at >= total - 1:
        return None
    if depth < tokens.num_full_pages and (gone := tree.evicted(tokens.key(depth))) is not None:
        clock, lapsed = gone
        span = f"{depth * size}-{(depth + 1) * size - 1}"
        flushed = clock <= tree.flushed_at
        how = "flushed" if flushed else "evicted"
        why = f"the page of tokens {span} was {how} {tree.clock - clock} operations ago"
        code, why = ("expired", f"{why}, after a pin on it had run out") if lapsed else ("evicted", why)
        pages, gone_all = _gone(tree, tokens, depth)
        return Miss(code, at, why, gone_tokens=min(total - 1, pages * size) - at, gone_all=gone_all, flushed=flushed)
    if at == 0:
        return Miss("below_page" if total < size else "cold", 0, "nothing that begins like this prompt is cached")
    if not below and (match.node.children or match.partial) and not _ends_cached(match):
        why = f"the cache knows the first {at} tokens with another continuation"
        now = tuple(tokens[at : at + _SHOWN])
        return Miss(
            "diverged", at, why, was_tokens=_known_from(match), now_tokens=now,
            branches=_branches(match), branch_start=depth * size,
        )  # fmt: skip
    if not tails and total - at < size:
        why = f"the {total - at} tokens after the last full page are not kept as a page of their own"
        return Miss("below_page", at, why)
    return Miss("cold", at, f"nothing is cached beyond the first {at} tokens")


def _gone(tree: PrefixTree, tokens: PagedTokens, depth: int) -> tuple[int, bool]:
    """How many pages the prompt had in the cache when its page ``depth`` was there, and whether that is sure."""
    end = depth + 1
    while end < tokens.num_full_pages and tree.evicted(tokens.key(end)) is not None:
        end += 1
    return end, end == tokens.num_full_pages or not tree.forgets


def _branches(match: Match) -> tuple[bytes, ...]:
    """Packed ids that follow the last whole page of ``match``: what is most like the prompt first, then what was used last."""
    likest = match.partial
    nodes = nlargest(_BRANCHES, match.node.children[:_LOOKED_AT], key=attrgetter("used"))
    if likest is None:
        return tuple(_follow(node) for node in nodes)
    first = likest.tokens if isinstance(likest, OpenPage) else _follow(likest)
    return (first, *(_follow(node) for node in nodes[: _BRANCHES - 1] if node is not likest))


def _follow(node: Node) -> bytes:
    """``node`` and what was used last of all that follows it."""
    found, room = [node.tokens], _BRANCH_TOKENS * TOKEN_BYTES - len(node.tokens)
    while node.children and room > 0 and len(found) < _BRANCH_PAGES:
        node = node.children[0] if len(node.children) == 1 else max(node.children[:_LOOKED_AT], key=attrgetter("used"))
        found.append(node.tokens)
        room -= len(node.tokens)
    return b"".join(found)


def _known_from(match: Match) -> tuple[int, ...]:
    """What the cache holds where ``match`` ends: of the page that was partly equal, or else of any that follows."""
    child = match.partial if match.partial is not None else match.node.children[0]
    return unpack_tokens(child.tokens)[match.partial_tokens : match.partial_tokens + _SHOWN]


def _ends_cached(match: Match) -> bool:
    """Whether the match ends where a tail ends: what was cached ended there, it did not go on differently."""
    partial = match.partial
    return partial is not None and partial.tail and match.partial_tokens == len(partial.tokens) // TOKEN_BYTES
