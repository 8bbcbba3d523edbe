"""Why a prompt was not cached further than it was."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from agentcache.cache.hashing import TOKEN_BYTES, unpack_tokens

if TYPE_CHECKING:
    from agentcache.cache.prefix_tree import Match, PrefixTree
    from agentcache.cache.tokens import PagedTokens

_SHOWN = 16
"""Tokens that a miss quotes of either side."""


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

    def to_json(self) -> dict[str, Any]:
        """As HTTP shows it: texts, not tokens."""
        shown = asdict(self)
        del shown["was_tokens"], shown["now_tokens"]
        return shown


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
        why = f"the page of tokens {span} was evicted {tree.clock - clock} operations ago"
        return Miss("expired", at, f"{why}, after a pin on it had run out") if lapsed else Miss("evicted", at, why)
    if at == 0:
        return Miss("below_page" if total < size else "cold", 0, "nothing that begins like this prompt is cached")
    if not below and (match.node.children or match.partial) and not _ends_cached(match):
        why = f"the cache knows the first {at} tokens with another continuation"
        return Miss("diverged", at, why, was_tokens=_known_from(match), now_tokens=tuple(tokens[at : at + _SHOWN]))
    if not tails and total - at < size:
        why = f"the {total - at} tokens after the last full page are not kept as a page of their own"
        return Miss("below_page", at, why)
    return Miss("cold", at, f"nothing is cached beyond the first {at} tokens")


def _known_from(match: Match) -> tuple[int, ...]:
    """What the cache holds where ``match`` ends: of the page that was partly equal, or else of any that follows."""
    child = match.partial if match.partial is not None else match.node.children[0]
    return unpack_tokens(child.tokens)[match.partial_tokens : match.partial_tokens + _SHOWN]


def _ends_cached(match: Match) -> bool:
    """Whether the match ends where a tail ends: what was cached ended there, it did not go on differently."""
    partial = match.partial
    return partial is not None and partial.tail and match.partial_tokens == len(partial.tokens) // TOKEN_BYTES
