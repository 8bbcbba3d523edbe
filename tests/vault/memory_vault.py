"""A vault in this process, which tests can take away, look into and damage."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from agentcache.sessions.vault import Kept, RecordName, VaultUnavailableError


@dataclass
class MemoryVault:
    """Servers in several threads may share one.

    Attributes:
        down: it does not answer.
        deaf: it does what it is asked, and does not answer.
        lasting: whether snapshots are kept in it.
        before_save: called before each write, outside the lock.
    """

    lasting: bool = True
    down: bool = False
    deaf: bool = False
    records: dict[RecordName, Kept] = field(default_factory=dict)
    before_save: Callable[[RecordName, int], None] | None = None
    loads: int = 0
    saves: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def _answer(self) -> None:
        if self.down or self.deaf:
            raise VaultUnavailableError("MemoryVault at tests/vault is away")

    async def load(self, name: RecordName) -> Kept | None:
        self._answer()
        with self.lock:
            self.loads += 1
            return self.records.get(name)

    async def save(self, name: RecordName, record: bytes, expected: int, ttl_s: float) -> bool:
        if self.before_save is not None:
            self.before_save(name, expected)
        if not self.deaf:
            self._answer()
        with self.lock:
            self.saves += 1
            kept = self.records.get(name)
            written = expected == (0 if kept is None else kept.version)
            if written:
                self.records[name] = Kept(expected + 1, record)
        self._answer()
        return written

    async def ids_of(self, owner: bytes) -> list[str]:
        self._answer()
        with self.lock:
            return [name.id for name in self.records if name.owner == owner and name.snapshot is None]

    async def close(self) -> None:
        """It outlives its servers."""

    def of(self, session_id: str) -> RecordName:
        (name,) = [name for name in self.records if name.id == session_id]
        return name
