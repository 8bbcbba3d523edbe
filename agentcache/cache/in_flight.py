"""Sharing among sequences that run at the same time: what is being computed, and pages that are not full yet.

::

    leader     | page | page | page being computed |        announced: whoever needs that page next waits for it
    follower   | page | page | ................... |

    leader     | page | page | t t t g g . . |              the t are the end of its prompt, the g it generated
    follower   | page | page | t t t x                      copies the t, as it would from a page in the tree
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from agentcache.cache.hashing import pack_tokens
from agentcache.cache.prefix_tree import Match, OpenPage, common_tokens

if TYPE_CHECKING:
    from agentcache.cache.lease import Lease
    from agentcache.cache.tokens import PagedTokens


_WORTH_WAITING = 64
"""Tokens.  Fewer are computed faster than waited for."""


class InFlight:
    """The whole pages that leases are computing, by key."""

    def __init__(self) -> None:
        self._leases: dict[bytes, Lease] = {}

    def __iter__(self) -> Iterator[Lease]:
        """Leases that others wait for."""
        return iter(self._leases.values())

    def announce(self, lease: Lease) -> None:
        """Tell that ``lease`` computes its next page now."""
        if lease.depth < lease.tokens.num_full_pages:
            self._leases.setdefault(lease.tokens.key(lease.depth), lease)

    def withdraw(self, lease: Lease) -> None:
        """Its step is over, or it was aborted: those who wait go on, with or without what it computed."""
        if lease.depth < lease.tokens.num_full_pages:
            key = lease.tokens.key(lease.depth)
            if self._leases.get(key) is lease:
                del self._leases[key]

    def awaited(self, tokens: PagedTokens, match: Match) -> bool:
        """Whether somebody computes the page that ``tokens`` need next."""
        depth = len(match.pages)
        return depth < tokens.num_full_pages and tokens.key(depth) in self._leases


def fills_much_of(leases: Iterable[Lease], tokens: PagedTokens, match: Match) -> bool:
    """Whether somebody is about to compute so much of the page that ``tokens`` need next that it is worth waiting for, although
    the page goes on differently.  Only of large pages."""
    size = tokens.page_size
    if size <= _WORTH_WAITING:
        return False
    start = len(match.pages) * size
    rest = pack_tokens(tokens[start : start + size])
    return any(
        common_tokens(pack_tokens(lease.tokens[start : start + size]), rest)
        >= max(lease.computed - start, match.partial_tokens) + _WORTH_WAITING
        for lease in leases
        if _stands_where(lease, tokens, match)
    )


def _stands_where(lease: Lease, tokens: PagedTokens, match: Match) -> bool:
    """Whether the page that ``lease`` fills is one that ``tokens`` may share.

    Both may end at the last public page, and what comes behind it is the other's own.
    """
    if lease.node is not match.node or not lease.publishing:
        return False
    public = lease.depth < lease.tokens.num_public
    return public == (lease.depth < tokens.num_public) and (public or lease.tokens.root == tokens.root)


def longest_open_page(leases: Iterable[Lease], tokens: PagedTokens, match: Match) -> OpenPage | None:
    """Of the pages that others are still filling where ``match`` ends, the one that ``tokens`` share most with, if it is
    more than what was matched in part."""
    size = tokens.page_size
    start = len(match.pages) * size
    rest = pack_tokens(tokens[start : start + size])
    best, most = None, match.partial_tokens
    for lease in leases:
        if lease.copying or lease.computed <= start or not _stands_where(lease, tokens, match):
            continue
        held = pack_tokens(lease.tokens[start : lease.computed])
        common = common_tokens(held, rest)
        if common > most:
            best, most = OpenPage(lease.pages[lease.depth], held), common
    return best
