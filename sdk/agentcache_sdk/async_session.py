"""The asynchronous twin of ``session``."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, NoReturn

from agentcache_sdk._core import SessionCore, SessionFlight, TurnInput, Wait, Waiting
from agentcache_sdk._transport import AsyncTransport
from agentcache_sdk.cache_warnings import CallSite
from agentcache_sdk.report import SessionReport
from agentcache_sdk.streams import AsyncChatStream
from agentcache_sdk.types import Turn


class AsyncSession:
    """``Session`` with ``await``; made by ``async_client.session(...)``.  Same arguments, results and errors.

    >>> import asyncio
    >>> from agentcache_sdk import AsyncClient
    >>> async def main() -> int:
    ...     async with AsyncClient("http://127.0.0.1:8100") as client:
    ...         async with client.session(system="Answer in one word.") as session:
    ...             await session.send("What is the capital of France?", max_tokens=8)
    ...             left, right = await session.fork(2)
    ...             turns = await asyncio.gather(left.send("Why?", max_tokens=8), right.send("Really?", max_tokens=8))
    ...     return len(turns)
    >>> asyncio.run(main())
    2
    """

    def __init__(self, transport: AsyncTransport, core: SessionCore) -> None:
        self._transport = transport
        self._core = core

    # A plain function that returns a coroutine, so that the user's line is known even when a task runs it.
    def send(
        self,
        text: str | None = None,
        *,
        max_tokens: int | None = None,
        volatile: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> Coroutine[Any, Any, Turn]:
        """See ``Session.send``."""
        return self._run(self._core.flight(TurnInput(text, max_tokens, volatile, sampling), CallSite.here()))

    async def _run(self, flight: SessionFlight) -> Turn:
        with flight as call:
            return flight.finish(await self._transport.run(call))

    def stream(
        self,
        text: str | None = None,
        *,
        max_tokens: int | None = None,
        volatile: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> AsyncChatStream:
        """See ``Session.stream``."""
        given = TurnInput(text, max_tokens, volatile, sampling)
        return AsyncChatStream(self._transport, self._core.flight(given, CallSite.here()))

    def tool_result(self, call_id: str, content: Any) -> None:
        """See ``Session.tool_result``."""
        self._core.tool_result(call_id, content)

    def waiting(self, tool: str, expect_s: float | None = None) -> Waiting:
        """See ``Session.waiting``; use it with ``async with``."""
        return self._core.waiting(tool, expect_s)

    async def fork(self, n: int = 1, *, at_turn: int | None = None) -> tuple[AsyncSession, ...]:
        """See ``Session.fork``."""
        return tuple(AsyncSession(self._transport, core) for core in self._core.fork(n, at_turn))

    async def rollback(self, to_turn: int) -> None:
        """See ``Session.rollback``."""
        self._core.rollback(to_turn)

    def mark(self) -> int:
        """See ``Session.mark``."""
        return self._core.mark()

    async def pin(self, ttl: str | float) -> NoReturn:
        """See ``Session.pin``."""
        self._core.not_held("pin")

    async def snapshot(self, name: str) -> NoReturn:
        """See ``Session.snapshot``."""
        self._core.not_held("snapshot")

    def report(self) -> SessionReport:
        """See ``Session.report``."""
        return self._core.report()

    @property
    def messages(self) -> tuple[dict[str, Any], ...]:
        """The conversation so far, as copies."""
        return self._core.messages

    @property
    def waits(self) -> tuple[Wait, ...]:
        """Tool runs that ``waiting`` recorded."""
        return tuple(self._core.waits)

    async def close(self) -> None:
        """End the session; later calls raise.  Idempotent."""
        self._core.close()

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
