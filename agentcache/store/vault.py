"""Sessions in a shared page store, as records beside its pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from typing import TypeVar

from agentcache.sessions.vault import Kept, RecordName, VaultUnavailableError
from agentcache.store.base import PageStore, StoreUnavailableError
from agentcache.store.session_index import PARTS, SessionIndex

_THREADS = 16
_GATHER_S = 0.2
"""Changes of the index are gathered for so long: many sessions that are made at once are one write."""
T = TypeVar("T")


class StoreVault:
    """See ``SessionVault``.  Used on the event loop only.

    Calls of the store block, so they are made on threads of their own: a store that hangs holds up nobody else.

    Args:
        store: stays open when the vault is closed.
        timeout_s: of a call.
    """

    def __init__(self, store: PageStore, timeout_s: float) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(_THREADS, "agentcache-vault")
        self._index = SessionIndex(store, timeout_s)
        self._writing: asyncio.Task[None] | None = None

    @property
    def lasting(self) -> bool:
        return True

    async def load(self, name: RecordName) -> Kept | None:
        record = await self._called(partial(self._store.load, _key(name), self._timeout_s))
        return None if record is None else Kept(record.version, record.value)

    async def save(self, name: RecordName, record: bytes, expected: int, ttl_s: float) -> bool:
        call = partial(self._store.save, _key(name), record, expected, ttl_s, self._timeout_s)
        written = await self._called(call)
        if written and self._index.note(name, ttl_s) and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write_index())
        return written

    async def ids_of(self, owner: bytes) -> list[str]:
        parts = await asyncio.gather(*(self._called(partial(self._index.ids_in, owner, part)) for part in range(PARTS)))
        return [name for part in parts for name in part]

    async def close(self) -> None:
        if self._writing is not None:
            await self._writing
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _write_index(self) -> None:
        while self._index.owing:
            await asyncio.sleep(_GATHER_S)
            try:
                for _ in range(self._index.owing):  # each has its own time
                    await self._called(self._index.write_part)
            except VaultUnavailableError:
                return  # with the next session that is written

    async def _called(self, call: Callable[[], T]) -> T:
        """
        Raises:
            VaultUnavailableError: the store did not answer; the call may still be carried out.
        """
        try:
            made = asyncio.get_running_loop().run_in_executor(self._threads, call)
            return await asyncio.wait_for(made, 2 * self._timeout_s)
        except StoreUnavailableError as error:
            raise VaultUnavailableError(str(error)) from error
        except asyncio.TimeoutError:
            raise VaultUnavailableError(f"{self._store.name} did not answer within {2 * self._timeout_s:g} s") from None
        except RuntimeError as error:  # the threads have ended
            raise VaultUnavailableError(f"{self._store.name} is closed") from error


def _key(name: RecordName) -> bytes:
    """Says nothing of whose a session is to people who look into the store."""
    digest = blake2b(len(name.owner).to_bytes(4, "little") + name.owner + name.id.encode(), digest_size=16)
    return b"agentcache:session1:" + digest.hexdigest().encode()
