"""Sessions outside the process that answers for them, so that another one can go on with them.

A vault keeps one record a session: what its committed turns are, and a version that counts its changes.  Whoever changes a
session writes the next version if, and only if, it knew the last one; so two servers that both have a copy of a session cannot
both go on with it, and a server whose copy is old notices::

    server A    load 3   turn: 3 -> 4 written           load 5: takes it over   turn: 5 -> 6 written
    server B                            load 4   turn: 4 -> 5 written           turn from its copy, 5: refused

What is in a record is the business of ``records``; a vault never looks inside.  A session that is ended leaves a small record
that says so: no record at all means that there never was one, that its time is over, or that the vault has lost it.

Who sends a turn again because the server that had it died (a gateway, say) gives the body a ``turn_id`` of its own before it
sends it the first time, unless the client gave one.  A turn that was committed under that ``turn_id`` is then answered as it was
answered, and is not made again.  ``if_turns`` is left as the client has it, or left out.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple, Protocol

from agentcache.errors import AgentCacheError

_SNAPSHOT = "snapshot:"


class VaultUnavailableError(AgentCacheError):
    """The vault did not answer, or not in time (HTTP 503)."""


class RecordName(NamedTuple):
    """Whose record it is is a part of its name, so that to ask for another owner's finds nothing and takes as long."""

    owner: bytes
    """``Home.owner``: a digest, never a key."""
    id: str
    """A session's id, or ``snapshot:`` and a snapshot's name."""

    @classmethod
    def of_snapshot(cls, owner: bytes, snapshot: str) -> RecordName:
        return cls(owner, _SNAPSHOT + snapshot)

    @property
    def snapshot(self) -> str | None:
        """A snapshot's name; ``None`` for a session's record."""
        return self.id.removeprefix(_SNAPSHOT) if self.id.startswith(_SNAPSHOT) else None


class Kept(NamedTuple):
    """A record; ``version`` counts from 1, and from 1 again in a vault that has lost what it had."""

    version: int
    record: bytes


def digest_of(record: bytes) -> bytes:
    """By which a record is known again."""
    return blake2b(record, digest_size=16).digest()


class SessionVault(Protocol):
    """Awaited on the event loop; holds it up for no longer than it takes to hand the work to somebody else.

    Attributes:
        lasting: records outlive every server; then snapshots are kept here too.

    Raises:
        VaultUnavailableError: from every method but ``close``.
    """

    @property
    def lasting(self) -> bool: ...

    async def load(self, name: RecordName) -> Kept | None:
        """The record, if there is one whose time is not over."""
        ...

    async def save(self, name: RecordName, record: bytes, expected: int, ttl_s: float) -> bool:
        """Write version ``expected + 1`` if version ``expected`` is the last one (0: there is none); whether it was.  Atomic.

        Args:
            ttl_s: seconds from now until the record may be forgotten, and is not found any more.
        """
        ...

    async def ids_of(self, owner: bytes) -> list[str]:
        """Ids in the names of an owner's records that are no snapshots, in no order.

        May leave out some that were made this very moment, and may name some that have ended.
        """
        ...

    async def close(self) -> None: ...
