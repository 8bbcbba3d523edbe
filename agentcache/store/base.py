"""What a shared store is to the rest: pages by key, and small records that change under a condition.

A store is a hint.  Nothing that it says is believed before a page's own bytes were checked (``codec``), and nothing that it fails
to do is an error to a request: a page that does not come is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agentcache.cache.tiers import TierStats
from agentcache.errors import AgentCacheError


class StoreUnavailableError(AgentCacheError):
    """The store did not answer, in time or at all; the message names it without its password."""


class StoreItem(NamedTuple):
    """``key`` as the store has it (``codec.StoreKeys``), and a whole value with its header."""

    key: bytes
    value: bytes


class Record(NamedTuple):
    """A small value and how often it was written; ``version`` counts from 1."""

    version: int
    value: bytes


class PageStore(Protocol):
    """One shared store.  Every call may block, up to its ``timeout_s``; every method may be called from any thread.

    ``timeout_s`` is for the whole call, however many keys it has and however slowly bytes come.  Two things may take longer: the
    name of a server being looked up, and a file system that hangs.  So a store is asked on threads that may be lost for a while.

    Raises:
        StoreUnavailableError: from each method but ``stats`` and ``close``.
    """

    name: str
    """As people may see it: its URL without a password."""

    def ping(self, timeout_s: float) -> None:
        """Whether it can be written to and read from."""
        ...

    def batch_exists(self, keys: Sequence[bytes], timeout_s: float) -> int:
        """How many of ``keys`` are there from the first one on, without a gap.  A hint: any may be gone when it is asked for.

        Being asked for counts as being used, so whoever has a chain's beginning himself asks for it all the same: otherwise the
        store would forget it first, and its end would be of no use.
        """
        ...

    def batch_get(self, keys: Sequence[bytes], timeout_s: float) -> list[bytes | None]:
        """A value or ``None`` for each key, in order; keys are the pages of a chain from its beginning on.

        What has not come in time, or before the connection was lost, is ``None`` (counted ``late``); if nothing came, it raises.
        """
        ...

    def batch_set(self, items: Sequence[StoreItem], timeout_s: float) -> set[bytes]:
        """Keep values, each whole or not at all.  Which of them the store forgets, and when, is its own affair.

        It forgets what was not used for long, so the beginning of a chain is given last.  A store that is full and forgets
        nothing takes nothing (counted ``full``); that is no error.

        Returns:
            Keys of the values that it took.
        """
        ...

    def stats(self) -> TierStats:
        """What this process did with it, without asking it.

        Pages ``read``, ``missing``, ``late``, ``written``, ``full`` and, by this process, ``evicted``; ``failed`` calls;
        ``damaged`` records.  ``used`` and ``capacity`` are what was known last, 0 where nothing is.
        """
        ...

    # -- records that more than one server writes (sessions) --------------------------------------------------------

    def load(self, key: bytes, timeout_s: float) -> Record | None:
        """The record, unless there is none, its time is over, or what is there is not whole."""
        ...

    def save(self, key: bytes, value: bytes, expected: int, ttl_s: float, timeout_s: float) -> bool:
        """Write ``value`` as version ``expected + 1`` if the record has version ``expected`` (0: there is none); atomic.

        Returns:
            Whether it was written; ``False``: somebody else wrote in between.  After ``StoreUnavailableError`` it may have been
            written or not: ``load`` tells.
        """
        ...

    def delete(self, key: bytes, timeout_s: float) -> None: ...

    def close(self) -> None: ...
