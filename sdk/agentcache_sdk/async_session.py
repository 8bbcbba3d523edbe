"""The asynchronous twin of ``session``."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Literal

from agentcache_sdk import _branches, _keeping
from agentcache_sdk._compaction import ASK, CompactInput, Compaction, compact
from agentcache_sdk._core import SessionCore, Wait, WaitClock
from agentcache_sdk._flights import SessionFlight, TurnInput, whole
from agentcache_sdk._tool_drivers import AsyncToolDriver
from agentcache_sdk._tool_loop import BeforeTurn, Callbacks, OnCall, OnDelta, OnResult, OnTurn, RunInput, RunResult
from agentcache_sdk._transport import AsyncTransport
from agentcache_sdk.alignment import Padding
from agentcache_sdk.cache_warnings import CallSite
from agentcache_sdk.report import SessionReport
from agentcache_sdk.streams import AsyncChatStream
from agentcache_sdk.tools import Tool
from agentcache_sdk.types import Explanation, Pin, Snapshot, Turn


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

    @property
    def id(self) -> str | None:
        """See ``Session.id``."""
        return self._core.id

    async def open(self) -> AsyncSession:
        """See ``Session.open``."""
        await self._transport.drive(self._core.open())
        return self

    # A plain function that returns a coroutine, so that the user's line is known even when a task runs it.
    def send(
        self,
        text: str | Sequence[int] | None = None,
        *,
        max_tokens: int | None = None,
        volatile: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **sampling: Any,
    ) -> Coroutine[Any, Any, Turn]:
        """See ``Session.send``."""
        given = TurnInput(text, max_tokens, volatile, sampling, timeout)
        return self._transport.drive(whole(SessionFlight(self._core, given, CallSite.here())))

    def stream(
        self,
        text: str | Sequence[int] | None = None,
        *,
        max_tokens: int | None = None,
        volatile: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **sampling: Any,
    ) -> AsyncChatStream:
        """See ``Session.stream``."""
        given = TurnInput(text, max_tokens, volatile, sampling, timeout)
        return AsyncChatStream(self._transport, SessionFlight(self._core, given, CallSite.here()))

    def run(
        self,
        text: str | None = None,
        *,
        max_turns: int = 8,
        max_tokens: int | None = None,
        volatile: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        on_turn: OnTurn | None = None,
        on_call: OnCall | None = None,
        on_result: OnResult | None = None,
        on_delta: OnDelta | None = None,
        before_turn: BeforeTurn | None = None,
        on_error: Literal["tell", "raise"] = "tell",
        **sampling: Any,
    ) -> Coroutine[Any, Any, RunResult]:
        """See ``Session.run``.  Tools and callbacks may be async; the calls of one turn run at the same time, plain
        functions in threads.
        """
        first = TurnInput(text, max_tokens, volatile, sampling, timeout)
        callbacks = Callbacks(on_turn, on_call, on_result, on_delta, before_turn)
        driver = AsyncToolDriver(self._transport, self._core, callbacks, CallSite.here())
        return driver.run(RunInput(first, max_turns, on_error).checked())

    def tool_result(self, call_id: str, content: Any) -> None:
        """See ``Session.tool_result``."""
        self._core.tool_result(call_id, content)

    def waiting(self, tool: str, expect_s: float | None = None) -> AsyncWaiting:
        """See ``Session.waiting``; use it with ``async with``."""
        return AsyncWaiting(self._transport, WaitClock(self._core, tool, expect_s))

    async def fork(self, n: int = 1, *, at_turn: int | None = None) -> tuple[AsyncSession, ...]:
        """See ``Session.fork``."""
        cores = await self._transport.drive(_branches.fork(self._core, n, at_turn))
        return tuple(AsyncSession(self._transport, core) for core in cores)

    async def rollback(self, to_turn: int) -> None:
        """See ``Session.rollback``."""
        await self._transport.drive(_branches.rollback(self._core, to_turn))

    async def adopt(self, fork: AsyncSession) -> None:
        """See ``Session.adopt``."""
        await self._transport.drive(_branches.adopt(self._core, fork._core))

    def add_tools(self, *tools: Tool) -> None:
        """See ``Session.add_tools``."""
        self._core.add_tools(tools)

    def compact(
        self, summary: str | None = None, *, keep_turns: int = 1, ask: str = ASK, max_tokens: int = 256
    ) -> Coroutine[Any, Any, Compaction]:
        """See ``Session.compact``."""
        given = CompactInput(summary, keep_turns, ask, max_tokens, CallSite.here())
        return self._transport.drive(compact(self._core, given))

    def mark(self) -> int:
        """See ``Session.mark``."""
        return self._core.mark()

    async def pin(self, ttl: str | float = "10m") -> Pin:
        """See ``Session.pin``."""
        return await self._transport.drive(_keeping.pin(self._core, ttl))

    async def unpin(self) -> None:
        """See ``Session.unpin``."""
        await self._transport.drive(_keeping.unpin(self._core))

    async def snapshot(self, name: str) -> Snapshot:
        """See ``Session.snapshot``."""
        return await self._transport.drive(_keeping.snapshot(self._core, name))

    async def explain(self) -> Explanation:
        """See ``Session.explain``."""
        return await self._transport.drive(_keeping.explain(self._core))

    def report(self) -> SessionReport:
        """See ``Session.report``."""
        return self._core.report()

    @property
    def padding(self) -> Padding | None:
        """See ``Session.padding``."""
        return self._core.padding

    @property
    def messages(self) -> tuple[dict[str, Any], ...]:
        """The conversation so far, as copies."""
        return self._core.messages

    @property
    def waits(self) -> tuple[Wait, ...]:
        """Tool runs that ``waiting`` recorded."""
        return tuple(self._core.waits)

    async def close(self) -> None:
        """See ``Session.close``."""
        await self._transport.drive(self._core.close())

    async def __aenter__(self) -> AsyncSession:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncWaiting:
    """A tool at work; see ``Session.waiting``."""

    def __init__(self, transport: AsyncTransport, clock: WaitClock) -> None:
        self._transport = transport
        self._clock = clock

    async def __aenter__(self) -> AsyncWaiting:
        await self._transport.drive(self._clock.start())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._clock.stop()
