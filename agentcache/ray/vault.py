"""Sessions kept for other replicas in a Ray actor, where there is no store to keep them in.

The actor outlives every replica, and ends with its cluster.  Its memory is bounded, and it may come up again empty: it is the
second copy of sessions whose first one is with the replica that answers for them, which writes it anew at their next turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from agentcache.sessions.vault import Kept, RecordName, VaultUnavailableError

NAMESPACE = "agentcache"
"""Of the names of our actors."""
PATIENCE_S = 10.0
"""How long the actor may take; it may have to come up again."""
_OVERHEAD = 256
"""Bytes of a record beside what is in it."""


class VaultRecords:
    """What the actor holds.

    Args:
        max_bytes: over it, records that were not used for longest are forgotten.
        clock: seconds.
    """

    def __init__(self, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._records: OrderedDict[RecordName, _Record] = OrderedDict()
        self._bytes = 0

    def load(self, name: RecordName) -> Kept | None:
        record = self._living(name)
        if record is None:
            return None
        self._records.move_to_end(name)
        return Kept(record.version, record.content)

    def save(self, name: RecordName, content: bytes, expected: int, ttl_s: float) -> bool:
        record = self._living(name)
        if (0 if record is None else record.version) != expected:
            return False
        self._drop(name)
        self._records[name] = _Record(expected + 1, content, self._clock() + ttl_s)
        self._bytes += len(content) + _OVERHEAD
        self._make_room()
        return True

    def ids_of(self, owner: bytes) -> list[str]:
        now = self._clock()
        return [
            name.id
            for name, record in self._records.items()
            if name.owner == owner and record.until > now and not name.id.startswith("snapshot:")
        ]

    def figures(self) -> dict[str, int]:
        return {"records": len(self._records), "bytes": self._bytes}

    def _living(self, name: RecordName) -> _Record | None:
        record = self._records.get(name)
        if record is not None and record.until <= self._clock():
            self._drop(name)
            return None
        return record

    def _drop(self, name: RecordName) -> None:
        record = self._records.pop(name, None)
        if record is not None:
            self._bytes -= len(record.content) + _OVERHEAD

    def _make_room(self) -> None:
        if self._bytes <= self._max_bytes:
            return
        for name in list(self._records):
            self._living(name)
        while self._bytes > self._max_bytes and len(self._records) > 1:
            self._drop(next(iter(self._records)))


class _Record(NamedTuple):
    version: int
    content: bytes
    until: float


class ActorVault:
    """A ``SessionVault`` over the actor; ``lasting`` is false, since it ends with its cluster.

    Args:
        actor: handle of an actor that is made of ``VaultRecords``.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    @property
    def lasting(self) -> bool:
        return False

    async def load(self, name: RecordName) -> Kept | None:
        kept: Kept | None = await self._told(self._actor.load, name)
        return kept

    async def save(self, name: RecordName, record: bytes, expected: int, ttl_s: float) -> bool:
        return bool(await self._told(self._actor.save, name, record, expected, ttl_s))

    async def ids_of(self, owner: bytes) -> list[str]:
        return list(await self._told(self._actor.ids_of, owner))

    async def close(self) -> None:
        """Nothing: it is everybody's."""

    async def _told(self, method: Any, *args: Any) -> Any:
        from ray.exceptions import RayError

        try:
            return await asyncio.wait_for(method.remote(*args), PATIENCE_S)
        except asyncio.TimeoutError:
            raise VaultUnavailableError(f"the actor that keeps sessions did not answer in {PATIENCE_S:g} s") from None
        except RayError as error:
            raise VaultUnavailableError(f"the actor that keeps sessions: {str(error).partition(chr(10))[0]}") from error


def vault_name(app: str) -> str:
    """Of the actor that keeps the sessions of the application ``app``."""
    return f"{app}-sessions"


class VaultPlace(NamedTuple):
    """Where the actor of one application is, or will be as soon as somebody asks for it.

    Attributes:
        name: of the actor.
        max_bytes: that it may hold.
    """

    name: str
    max_bytes: int

    def open(self) -> ActorVault:
        import ray

        actor = ray.remote(VaultRecords).options(
            name=self.name,
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=-1,
            max_task_retries=0,
            num_cpus=0,
        )
        return ActorVault(actor.remote(self.max_bytes))
