"""Pages that must be asked for before they can be had: a tier behind a network, which no step waits for.

::

    acquire, first look ──► which pages are missing? ──► FarTier.fetch ──► its threads ask the store
       │                                                                          │
       └─► FETCHING: others go on, the request keeps its place          arrived, nothing there, late
                                                                                  │
    acquire, next look  ◄────────────────── wake ◄────────────────────────────────┘
       └─► takes what came with LowerTiers.find, as from any other tier, and is admitted

A request asks once for each admission, and never waits longer than ``Fetch.over`` allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agentcache.cache.tiers import PageName, Tier

if TYPE_CHECKING:
    from agentcache.cache.lower import LowerTiers
    from agentcache.cache.tokens import PagedTokens


class Fetch(Protocol):
    """What one request waits for."""

    @property
    def over(self) -> bool:
        """Whether there is nothing to wait for any more: all came, or no more will, or it is too late."""
        ...

    def end(self) -> None:
        """The request was admitted, or has ended.  What came for it alone is dropped.  Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class FarStats:
    """What a far tier did since it was made.

    Attributes:
        fetches: how they ended: ``fetched`` (pages came), ``nothing`` (it has none), ``gate`` (computing is cheaper), ``late``
            or ``failed``.
        pages, bytes: ``read``, ``written``, ``full`` (refused), ``dropped`` (the writer fell behind) and ``failed`` (to be
            written).
        rejected: values that were not the page that was asked for, by reason.
        latency_s: seconds to answer at all, of late; ``None`` before the first answer.
        bandwidth: bytes a second beyond that, of late; ``None`` before the first transfer.
        gate_open: whether any number of pages would be fetched now.
        up: whether it answers.
    """

    fetches: Mapping[str, int]
    pages: Mapping[str, int]
    bytes: Mapping[str, int]
    rejected: Mapping[str, int]
    latency_s: float | None
    bandwidth: float | None
    gate_open: bool
    up: bool


class FarTier(Tier, Protocol):
    """A tier that answers later.  ``in`` and ``get`` are about what has arrived from it."""

    wake: Callable[[], None]
    """Called on one of its threads when a fetch is over."""

    @property
    def epoch(self) -> int:
        """Grows when pages that were put here before may have been forgotten: they are put again when they are used again."""
        ...

    @property
    def most_pages(self) -> int:
        """More are not fetched at once."""
        ...

    def fetch(self, pages: Sequence[PageName], before: Sequence[bytes], token_s: float) -> Fetch:
        """Begin to bring ``pages`` near; returns at once.

        Args:
            before: keys of the pages before them, which need not be brought: the tier should not forget those first.
            token_s: seconds that computing one token takes; 0 where that is not known yet.
        """
        ...

    def knows(self, key: bytes) -> bool:
        """Whether the page is taken to be there, by what was seen of late."""
        ...

    def wait_s(self) -> float | None:
        """Seconds until the next fetch is over at the latest; ``None`` while there is none."""
        ...

    def far_stats(self) -> FarStats: ...

    def check(self, fetches: Iterable[Fetch]) -> list[str]:
        """What is broken, in sentences, if ``fetches`` are all that somebody waits for."""
        ...


class Errand:
    """What one admission of one sequence asks of the far tier: at most one fetch."""

    __slots__ = ("fetch",)

    def __init__(self) -> None:
        self.fetch: Fetch | None = None
        """``None`` before it was looked at for the first time."""

    @property
    def pending(self) -> bool:
        """Whether something was asked for and may still come."""
        return self.fetch is not None and not self.fetch.over

    def waits(self, lower: LowerTiers, tokens: PagedTokens, start: int) -> bool:
        """Whether to wait for full pages of ``tokens`` from ``start`` on; asks for them if that was not done yet."""
        if self.fetch is not None and self.fetch.over:
            return False
        near = start + lower.pages_at_hand(tokens, start)
        if near == tokens.num_full_pages:
            return False
        if self.fetch is None:
            self.fetch = lower.fetch(tokens, near)
        return not self.fetch.over

    def end(self) -> None:
        """The sequence was admitted, or has ended."""
        if self.fetch is not None:
            self.fetch.end()
