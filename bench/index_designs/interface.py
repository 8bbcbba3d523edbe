"""One interface for four designs of a prefix index, so that the same bench and the same tests can drive them.

All of them map token prefixes to numbers of fixed pages; where the keys and values lie is not their concern.  A request's
life in them::

    found = index.lookup(tokens)                       what is known of the prompt
    index.pin(found)                                   it stays while the request runs
    found = index.publish(found, tokens, pages)        the rest was computed into ``pages``; the pin moves to the new end
    index.unpin(found)                                 from now on it may be evicted
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from agentcache.cache.tokens import PagedTokens

At = TypeVar("At")


@dataclass(frozen=True, slots=True)
class Found(Generic[At]):
    """The longest known beginning of a prompt.

    Attributes:
        tokens: how many tokens are known; a multiple of the page size in designs that know only whole pages.
        pages: the page numbers of the whole pages in it.
        at: the design's own place; valid until the index changes, and for as long as it is pinned.
    """

    tokens: int
    pages: list[int]
    at: At


class PrefixIndex(Protocol[At]):
    """What a design can do."""

    name: str
    field_use: str
    """Where this design is found."""

    def __len__(self) -> int:
        """Pages that are known."""
        ...

    def lookup(self, tokens: PagedTokens) -> Found[At]:
        """The longest known beginning of ``tokens``.  Changes nothing that can be seen."""
        ...

    def pin(self, found: Found[At]) -> None:
        """Keep everything that was found; may be called several times."""
        ...

    def unpin(self, found: Found[At]) -> None:
        """One pin less.  What nobody pins counts as used just now and may be evicted."""
        ...

    def publish(self, found: Found[At], tokens: PagedTokens, pages: Iterable[int]) -> Found[At]:
        """Make all full pages of ``tokens`` known; ``found``, a pinned beginning of them, is pinned no more, the result is.

        Args:
            pages: one for each full page that is not in ``found.pages``, in order.

        Returns:
            Where the full pages end.  Where somebody else published a page meanwhile, its number stands in the result
            instead of the one given, which is still the caller's.
        """
        ...

    def evict(self, count: int) -> list[int]:
        """Forget what was not used for longest; at least ``count`` pages if so many are not pinned."""
        ...


AnyIndex = PrefixIndex[Any]


def common_units(a: bytes, b: bytes, unit: int, known: int = 0) -> int:
    """How many leading units of ``unit`` bytes two strings share; their first ``known`` bytes are known to agree."""
    low, high = known // unit, min(len(a), len(b)) // unit
    while low < high:
        middle = (low + high + 1) // 2
        if a[low * unit : middle * unit] == b[low * unit : middle * unit]:
            low = middle
        else:
            high = middle - 1
    return low
