"""Locks by name, which are there for as long as somebody wants them.  Used on the event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=tuple[object, ...])


@dataclass
class _Wanted:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    by: int = 0


class KeyedLocks(Generic[K]):
    """Each is for one holder at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._locks: dict[K, _Wanted] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, *keys: K) -> AsyncIterator[None]:
        """Several are taken in one order, whoever asks for them, so that nobody waits for each other."""
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys), key=repr):
                await stack.enter_async_context(self._one(key))
            yield

    @asynccontextmanager
    async def _one(self, key: K) -> AsyncIterator[None]:
        wanted = self._locks.setdefault(key, _Wanted())
        wanted.by += 1
        try:
            async with wanted.lock:
                yield
        finally:
            wanted.by -= 1
            if not wanted.by:
                del self._locks[key]
