"""Sessions outside the process that answers for them, so that another one can go on with them.

A vault keeps one record a session: what its committed turns are, whose it is, and a version that counts its changes.  Whoever
changes a session writes the next version if, and only if, it knew the last one; so two servers that both believe to have a
session cannot both go on with it, and a server whose copy is old notices.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from agentcache.errors import AgentCacheError


class VaultUnavailableError(AgentCacheError):
    """The vault did not answer."""


class Kept(NamedTuple):
    """A session's record; ``version`` counts from 1."""

    version: int
    record: bytes


class SessionVault(Protocol):
    """Awaited on the event loop.

    Raises:
        VaultUnavailableError: from every method but ``close``.
    """

    async def load(self, session_id: str) -> Kept | None: ...

    async def save(self, session_id: str, record: bytes, expected: int, ttl_s: float) -> bool:
        """Write version ``expected + 1`` if version ``expected`` is the last one (0: there is none); whether it was."""
        ...

    async def delete(self, session_id: str) -> None: ...

    async def ids_of(self, owner: bytes) -> list[str]:
        """Sessions of an owner, in no order; may leave out some that were made or ended this very moment."""
        ...

    async def close(self) -> None: ...
