"""Calls to a vault that may be out of reach: told in the log once, counted, and not waited for again and again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agentcache.sessions.vault import Kept, RecordName, SessionVault, VaultUnavailableError

logger = logging.getLogger(__name__)

_REST_S = 1.0
"""A vault that did not answer is not asked for so long: whoever comes meanwhile would wait in vain as well."""
_AT_A_TIME = 8
"""Calls.  Others wait, so that a vault that stops to answer is waited for by these alone."""
T = TypeVar("T")


class VaultCalls:
    """Used on the event loop only.

    Args:
        counts: ``unavailable`` calls are counted in it.
    """

    def __init__(self, vault: SessionVault, counts: Counter[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._vault = vault
        self._counts = counts
        self._clock = clock
        self._rests_until = 0.0
        self._silent = False
        self._room = asyncio.Semaphore(_AT_A_TIME)

    async def load(self, name: RecordName) -> Kept | None:
        return await self._asked(lambda: self._vault.load(name))

    async def save(self, name: RecordName, record: bytes, expected: int, ttl_s: float) -> bool:
        return await self._asked(lambda: self._vault.save(name, record, expected, ttl_s))

    async def ids_of(self, owner: bytes) -> list[str]:
        return await self._asked(lambda: self._vault.ids_of(owner))

    async def close(self) -> None:
        await self._vault.close()

    async def _asked(self, call: Callable[[], Awaitable[T]]) -> T:
        async with self._room:
            return await self._asked_now(call)

    async def _asked_now(self, call: Callable[[], Awaitable[T]]) -> T:
        if self._clock() < self._rests_until:
            raise VaultUnavailableError("the store that keeps sessions did not answer a moment ago")
        try:
            answer = await call()
        except VaultUnavailableError as error:
            self._counts["unavailable"] += 1
            self._rests_until = self._clock() + _REST_S
            if not self._silent:
                logger.warning(
                    "the store that keeps sessions does not answer, sessions that are here go on without it: %s", error
                )
            self._silent = True
            raise VaultUnavailableError(
                "the store that keeps sessions does not answer"
            ) from error  # where it is is nobody's business
        if self._silent:
            logger.warning("the store that keeps sessions answers again")
        self._silent = False
        return answer
