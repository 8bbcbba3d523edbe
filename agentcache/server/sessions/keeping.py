"""Where sessions are kept: here alone, or in a vault as well (``vault_keeping``).  Used on the event loop only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from agentcache.sessions.session import Home, Session
from agentcache.sessions.store import SessionStore

Find = Callable[[str], Awaitable[Session]]
"""The newest state of a session; as ``Keeper.get``."""


@dataclass(frozen=True)
class Client:
    """Who asks for sessions.

    Attributes:
        home: where its sessions of a salt live.
    """

    owner: bytes
    home: Callable[[str | None], Home]


class Keeper(Protocol):
    """How sessions are found, changed and ended.

    ::

        async with keeper.alone(client, id) as find:    # nobody else here changes it meanwhile
            session = await find(id)                    # its newest state
            ...                                         # conditions
            await keeper.change(session, change)        # written down, then made
    """

    @property
    def counts(self) -> Mapping[str, int]:
        """What the vault did and did not do, by name."""
        ...

    async def get(self, client: Client, session_id: str, *, use: bool = True) -> Session:
        """The newest state of a session.  To ``use`` it lets its idle time start anew; looking at it does not.

        Raises:
            SessionNotFoundError: there is none, it expired, or it is somebody else's.
            RecordDivergedError: it was made with another model or template.
            VaultUnavailableError: it may be in the vault, which does not answer.
        """
        ...

    def alone(self, client: Client, *session_ids: str) -> AbstractAsyncContextManager[Find]:
        """A stretch in which nothing else here changes these sessions; a turn in flight is committed before or after it."""
        ...

    async def add(self, session: Session) -> None:
        """Keep a new session.

        Raises:
            TooManySessionsError: no more can be kept.
        """
        ...

    async def change(self, session: Session, change: Callable[[Session], None]) -> None:
        """Make a change; inside ``alone``.

        Args:
            change: made on a draft of the session first, so that what it refuses is not written.

        Raises:
            SessionBusyError: another server was faster; the session is now as that one left it.
            SessionNotFoundError: another server ended it.
        """
        ...

    async def end(self, session: Session, check: Callable[[Session], None] | None = None) -> None:
        """End a session for every server; inside ``alone``.

        Args:
            check: raises where the session is not what its client takes it to be.

        Raises:
            SessionBusyError, SessionNotFoundError: as ``change``; only with ``check``.
        """
        ...

    async def owned(self, client: Client) -> list[Session]:
        """A client's sessions, to be looked at."""
        ...

    async def tend(self) -> None:
        """What is owed to the vault; called once a second."""
        ...

    async def close(self) -> None: ...


class LocalKeeper:
    """Sessions of this server alone: what is here is the newest, and changes are made at once.

    Args:
        store: where they are.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    @property
    def counts(self) -> Mapping[str, int]:
        return {}

    async def get(self, client: Client, session_id: str, *, use: bool = True) -> Session:
        return self._store.get(session_id, client.owner, use=use)

    @asynccontextmanager
    async def alone(self, client: Client, *session_ids: str) -> AsyncIterator[Find]:
        async def find(session_id: str) -> Session:
            return self._store.get(session_id, client.owner)

        yield find

    async def add(self, session: Session) -> None:
        self._store.add(session)

    async def change(self, session: Session, change: Callable[[Session], None]) -> None:
        change(session)

    async def end(self, session: Session, check: Callable[[Session], None] | None = None) -> None:
        if check is not None:
            check(session)
        self._store.end(session)

    async def owned(self, client: Client) -> list[Session]:
        return list(self._store.of(client.owner))

    async def tend(self) -> None:
        """Nothing is owed to anybody."""

    async def close(self) -> None:
        """Nothing is open."""
