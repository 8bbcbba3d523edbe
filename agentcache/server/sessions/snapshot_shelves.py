"""Where snapshots are kept: in files of this machine, or in a vault that every server reads.  Used on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from starlette.concurrency import run_in_threadpool

from agentcache.server.sessions.vault_calls import VaultCalls
from agentcache.sessions.records import DamagedRecordError, RecordDivergedError, Records
from agentcache.sessions.session import Session
from agentcache.sessions.session_json import Saved
from agentcache.sessions.snapshots import SnapshotDivergedError, SnapshotFailedError, Snapshots
from agentcache.sessions.vault import RecordName

logger = logging.getLogger(__name__)

_FOR_GOOD_S = 10 * 365 * 86_400.0
_ATTEMPTS = 5


class SnapshotShelf(Protocol):
    """
    Raises:
        SnapshotNotFoundError, SnapshotDivergedError, SnapshotFailedError: as ``Snapshots``.
        VaultUnavailableError: the vault does not answer.
    """

    async def save(self, name: str, session: Session) -> None:
        """Keep the committed turns of ``session``, a copy (``Session.frozen``), in place of an older snapshot of that name."""
        ...

    async def load(self, name: str, owner: bytes) -> Saved: ...


class FileShelf:
    """
    Args:
        files: made when the first snapshot is asked for.
    """

    def __init__(self, files: Callable[[], Snapshots]) -> None:
        self._files = files

    async def save(self, name: str, session: Session) -> None:
        await run_in_threadpool(self._files().save, name, session)

    async def load(self, name: str, owner: bytes) -> Saved:
        return await run_in_threadpool(self._files().load, name, owner)


class VaultShelf:
    """
    Args:
        before: where snapshots were kept while there was no vault; they can still be restored.
    """

    def __init__(self, vault: VaultCalls, records: Records, before: SnapshotShelf) -> None:
        self._vault = vault
        self._records = records
        self._before = before

    async def save(self, name: str, session: Session) -> None:
        place, version = RecordName.of_snapshot(session.home.owner, name), 0
        for _ in range(_ATTEMPTS):
            record = await asyncio.to_thread(self._records.of_snapshot, place, session, version + 1)
            if await self._vault.save(place, record, version, _FOR_GOOD_S):
                return
            kept = await self._vault.load(place)
            version = 0 if kept is None else kept.version
        raise SnapshotFailedError(f"name: snapshot {name!r} is being written by others all the time")

    async def load(self, name: str, owner: bytes) -> Saved:
        place = RecordName.of_snapshot(owner, name)
        kept = await self._vault.load(place)
        if kept is None:
            return await self._before.load(name, owner)
        try:
            return await asyncio.to_thread(self._records.snapshot, place, kept)
        except RecordDivergedError as error:
            raise SnapshotDivergedError(str(error)) from error
        except DamagedRecordError as error:
            logger.warning("snapshot %s: its record in the store is no use: %s", name, error)
            raise SnapshotFailedError(f"from_snapshot: {name!r} is damaged or of another format") from error
