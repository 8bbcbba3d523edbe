"""Sessions that other servers may go on with: each change is written into a vault before anybody is told of it.

The copy here is believed where the vault has the same version.  Where it has another one, another server went on: the copy here
becomes what that one left.  While the vault does not answer, sessions that are here go on, and what is owed to it is written
when it answers again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

from agentcache.errors import AgentCacheError
from agentcache.server.sessions.keeping import Client, Find
from agentcache.server.sessions.keyed_locks import KeyedLocks
from agentcache.server.sessions.vault_calls import VaultCalls
from agentcache.sessions.records import DamagedRecordError, Records
from agentcache.sessions.session import Session, SessionBusyError
from agentcache.sessions.store import ID, SessionStore
from agentcache.sessions.vault import Kept, RecordName, SessionVault, VaultUnavailableError, digest_of

logger = logging.getLogger(__name__)

_SPARE_S = 5.0
"""A record is kept for so much longer than its session, so that it is never the vault that ends it."""
_ENDED_S = 600.0
"""That a session has ended is known for so long at least: longer than a turn of it that somebody may be generating."""
_ATTEMPTS = 5
_AT_A_TIME = 4
"""Calls for many sessions, so that there is room for others meanwhile."""
_EVENTS = ("written", "taken_over", "overtaken", "parted", "damaged", "unavailable")
_LISTING_S = 5.0
"""A list looks into the vault for so long.  After that sessions that are here are told as they are, and others left out."""
T = TypeVar("T")


class VaultKeeper:
    """See ``Keeper``.  Used on the event loop only.

    Args:
        now: seconds on the engine's clock.
        leave: told of a session whose copy here is no longer of use (its leases go).
    """

    def __init__(
        self,
        store: SessionStore,
        vault: SessionVault,
        records: Records,
        now: Callable[[], float],
        leave: Callable[[Session], None],
    ) -> None:
        self._store = store
        self._records = records
        self._now = now
        self._leave = leave
        self._counts: Counter[str] = Counter(dict.fromkeys(_EVENTS, 0))
        self.calls = VaultCalls(vault, self._counts)
        self._locks: KeyedLocks[RecordName] = KeyedLocks()
        self._owing: dict[RecordName, Session] = {}
        self._ends: dict[RecordName, float] = {}
        """Sessions that were ended while the vault did not answer, and how long that must be remembered."""

    @property
    def counts(self) -> Mapping[str, int]:
        return self._counts

    # -- finding ----------------------------------------------------------------------------------------------------

    async def get(self, client: Client, session_id: str, *, use: bool = True) -> Session:
        async with self._locks.hold(RecordName(client.owner, session_id)):
            return await self._newest(client, session_id, use=use)

    @asynccontextmanager
    async def alone(self, client: Client, *session_ids: str) -> AsyncIterator[Find]:
        async with self._locks.hold(*(RecordName(client.owner, session_id) for session_id in session_ids)):
            yield partial(self._newest, client)

    async def owned(self, client: Client) -> list[Session]:
        here = {session.id: session for session in self._store.of(client.owner)}
        ids = [*here]
        with suppress(VaultUnavailableError):
            ids += sorted(filter(ID.fullmatch, set(await self.calls.ids_of(client.owner)) - here.keys()))
        until = self._now() + _LISTING_S
        looks = [partial(self._look, client, session_id, here.get(session_id), until) for session_id in ids]
        return [session for session in await _few_at_a_time(looks) if session is not None]

    async def _look(self, client: Client, session_id: str, here: Session | None, until: float) -> Session | None:
        """A session as the vault has it, which is not kept here for that."""
        if here is not None and here.closed:
            return None
        if self._now() > until:
            return here
        name = RecordName(client.owner, session_id)
        try:
            kept = await self.calls.load(name)
            if here is not None and (kept is None or here.copy.is_of(kept) or here.copy.owed):
                return here
            found = None if kept is None else await self._read(client, name, kept)
        except AgentCacheError:
            return here
        return found if found is not None and found.expires_at > self._now() else None

    async def _newest(self, client: Client, session_id: str, *, use: bool = True) -> Session:
        """Under the session's lock."""
        name = RecordName(client.owner, session_id)
        session = self._store.find(session_id, client.owner)
        # A turn that is in flight here finds out where it is committed.
        if session is None or session.in_flight is None:
            session = await self._compared(client, name, session)
        if use:
            session.touch(self._now())
            if session.in_flight is None:
                await self._say_used(session)
        return session

    async def _compared(self, client: Client, name: RecordName, session: Session | None) -> Session:
        if name in self._ends or (session is None and not ID.fullmatch(name.id)):
            return self._store.get(name.id, client.owner)  # refused as any other that does not exist
        try:
            kept = await self.calls.load(name)
        except VaultUnavailableError:
            if session is None or session.closed:
                raise
            return session
        if session is not None and session.closed:  # its time was over while we waited
            session = None
        if session is None:
            return await self._take_over(client, name, None, kept)
        same = kept is not None and session.copy.is_of(kept)
        theirs = kept is not None and not same and digest_of(kept.record) not in session.copy.tried
        if kept is not None and theirs and not await self._spoiled(client, session, kept):
            if session.copy.owed:
                logger.warning("session %s: another server went on while the store was out of reach", name.id)
                self._counts["parted"] += 1
            return await self._take_over(client, name, session, kept)
        if not same or session.copy.owed:
            # What was owed was written after all; or the vault has lost what it had, and gets it again.
            session.copy.version = 0 if kept is None else kept.version
            if not await self._put(session, session):
                return await self._compared(client, name, session)
        return session

    async def _take_over(self, client: Client, name: RecordName, session: Session | None, kept: Kept | None) -> Session:
        """Go on from a record; whatever is here of the session makes room for it.

        Raises:
            SessionNotFoundError: it has ended, or cannot be read.
            RecordDivergedError: another model or template made it.
        """
        found = None if kept is None else await self._read(client, name, kept)
        if found is None or found.expires_at <= self._now():
            if session is not None:
                self._forget(session)
            return self._store.get(name.id, client.owner)
        if session is None or session.closed:
            # Not ``add``: its idle time goes on where it was.
            session = self._store.put(found)
        else:
            self._leave(session)
            session.become(found)
            self._owing.pop(name, None)
        self._counts["taken_over"] += 1
        session.note("moved", self._now(), turns=len(session.turns))
        return session

    async def _spoiled(self, client: Client, session: Session, kept: Kept) -> bool:
        """Whether a record is what the vault makes of the one that ``session`` is a copy of: that is written again."""
        if kept.version != session.copy.version:
            return False
        try:
            await asyncio.to_thread(self._records.session, _name(session), kept, client.home)
        except DamagedRecordError:
            self._counts["damaged"] += 1
            return True
        except AgentCacheError:
            return False
        return False

    async def _read(self, client: Client, name: RecordName, kept: Kept) -> Session | None:
        """The session of a record; ``None`` where it has ended, or is damaged.

        Raises:
            RecordDivergedError: another model or template made it.
        """
        try:
            found = await asyncio.to_thread(self._records.session, name, kept, client.home)
        except DamagedRecordError as error:
            self._counts["damaged"] += 1
            logger.warning("session %s: its record in the store is no use: %s", name.id, error)
            return None
        if found is not None:
            found.copy.version, found.copy.digest = kept.version, digest_of(kept.record)
            # Of whoever wrote it by a clock that is ahead.
            found.expires_at = min(found.expires_at, self._now() + found.ttl_s)
        return found

    # -- changing ---------------------------------------------------------------------------------------------------

    async def add(self, session: Session) -> None:
        self._store.add(session)
        await self._put(session, session)

    async def change(self, session: Session, change: Callable[[Session], None]) -> None:
        draft = session.draft()
        change(draft)
        if not await self._put(session, draft):
            raise await self._overtaken(session)
        change(session)

    async def end(self, session: Session, check: Callable[[Session], None] | None = None) -> None:
        if check is not None:
            check(session)
        if not await self._put_end(_name(session), session.copy.version, session.ttl_s, at_any=check is None):
            raise await self._overtaken(session)
        self._forget(session)

    async def _say_used(self, session: Session) -> None:
        """The vault is told now and then that a session is in use."""
        if self._records.clock.to_unix(session.expires_at) - session.copy.expires > session.ttl_s / 4:
            await self._put(session, session)

    async def _put(self, session: Session, state: Session) -> bool:
        """Write ``state`` as the next version of ``session``; whether nobody else was faster.  What cannot be written is owed."""
        name, copy, record = _name(session), session.copy, b""
        try:
            for _ in range(_ATTEMPTS):
                version = copy.version + 1
                record = await asyncio.to_thread(self._records.of_session, state.draft(), version)
                written = await self.calls.save(name, record, version - 1, session.ttl_s + _SPARE_S)
                kept = Kept(version, record) if written else await self.calls.load(name)
                if kept is None:  # its time was over in the vault, or the vault has lost it
                    copy.version = 0
                    continue
                if kept.record != record and digest_of(kept.record) in copy.tried:
                    copy.version = kept.version  # our own, that was written without an answer
                    continue
                if kept.record != record:
                    return False
                copy.version, copy.digest, copy.owed = version, digest_of(record), False
                copy.expires = self._records.clock.to_unix(state.expires_at)
                copy.tried.clear()
                self._owing.pop(name, None)
                self._counts["written"] += 1
                return True
        except VaultUnavailableError:
            pass
        if record:
            copy.tried.add(digest_of(record))
        copy.owed = True
        self._owing[name] = session
        return True

    async def _put_end(self, name: RecordName, version: int, ttl_s: float, *, at_any: bool) -> bool:
        """Write that a session has ended, as the version after ``version`` or after whichever there is; whether it is written."""
        try:
            for _ in range(_ATTEMPTS):
                record = self._records.of_end(name, version + 1)
                if await self.calls.save(name, record, version, max(ttl_s, _ENDED_S) + _SPARE_S):
                    self._ends.pop(name, None)
                    return True
                kept = await self.calls.load(name)
                if kept is not None and (kept.record == record or not at_any):
                    self._ends.pop(name, None)
                    return kept.record == record
                version = 0 if kept is None else kept.version
        except VaultUnavailableError:
            pass
        self._ends[name] = self._now() + ttl_s
        return True

    async def _overtaken(self, session: Session) -> AgentCacheError:
        """Another server has changed a session since it was last compared: take that over; what its client is told."""
        self._counts["overtaken"] += 1
        name = _name(session)
        try:
            kept = await self.calls.load(name)
            await self._take_over(_client_of(session), name, session, kept)
        except VaultUnavailableError:
            pass  # compared again when it is asked for
        except AgentCacheError as error:
            return error
        return SessionBusyError(f"session {session.id} has just gone on through another server; look at it again")

    def _forget(self, session: Session) -> None:
        self._owing.pop(_name(session), None)
        self._store.end(session)

    # -- what is owed -----------------------------------------------------------------------------------------------

    async def tend(self) -> None:
        now = self._now()
        for name in [name for name, until in self._ends.items() if until <= now]:
            del self._ends[name]
        for name in [name for name, session in self._owing.items() if session.closed]:
            del self._owing[name]
        ends = [partial(self._put_end, name, 0, until - now, at_any=True) for name, until in self._ends.items()]
        await _few_at_a_time(ends)
        await _few_at_a_time([partial(self._pay, session) for session in self._owing.values()])

    async def _pay(self, session: Session) -> None:
        with suppress(AgentCacheError):
            await self.get(_client_of(session), session.id, use=False)

    async def close(self) -> None:
        await self.tend()
        await self.calls.close()


async def _few_at_a_time(works: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """What each gives, in order."""
    room = asyncio.Semaphore(_AT_A_TIME)

    async def one(work: Callable[[], Awaitable[T]]) -> T:
        async with room:
            return await work()

    return await asyncio.gather(*map(one, works))


def _client_of(session: Session) -> Client:
    """Whoever has ``session``, as far as that one is concerned: its salt never changes."""
    return Client(session.home.owner, lambda _: session.home)


def _name(session: Session) -> RecordName:
    return RecordName(session.home.owner, session.id)
