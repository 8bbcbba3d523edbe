"""A reply while it is being generated."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack

import httpx

from agentcache_sdk import _calls
from agentcache_sdk._events import TurnReader
from agentcache_sdk._flights import Flight
from agentcache_sdk._replies import Reply, stream_error
from agentcache_sdk._transport import AsyncTransport, Transport
from agentcache_sdk.errors import AgentCacheError
from agentcache_sdk.types import Turn

_CUT = "the stream was closed before its end (or never opened: use it in a `with` statement); there is no result"


class ChatStream:
    """Iterate for pieces of text; ``result()`` reads what is left and returns the whole turn.

    Leaving the ``with`` statement before the end cuts the reply: the server stops generating and a session stays as
    it was before the turn.

    >>> from agentcache_sdk import Client
    >>> with Client("http://127.0.0.1:8100") as client:
    ...     with client.stream_chat([{"role": "user", "content": "Say hello."}], max_tokens=8) as stream:
    ...         text = "".join(stream)
    ...     turn = stream.result()
    >>> text == turn.text
    True
    """

    def __init__(self, transport: Transport, flight: Flight) -> None:
        self._transport = transport
        self._flight = flight
        self._open = ExitStack()
        self._reader: TurnReader | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._turn: Turn | None = None

    def __enter__(self) -> ChatStream:
        with ExitStack() as stack:
            flight = stack.enter_context(self._flight)
            call = _calls.streamed(self._transport.drive(flight.prepare()))
            try:
                response = self._transport.open(call)
            except AgentCacheError as error:
                response = self._transport.open(_calls.streamed(self._transport.drive(flight.recover(error))))
            stack.callback(response.close)
            self._open = stack.pop_all()
        self._pieces = response.iter_bytes()
        self._reader = TurnReader(self._transport.base_url, Reply(response.status_code, response.headers, b""))
        return self

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            return self._next()
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise

    def result(self) -> Turn:
        """The whole turn; reads the rest of the stream first.

        Raises:
            AgentCacheError: the stream failed, or was closed before its end.
        """
        for _ in self:
            pass
        if self._turn is None:
            raise AgentCacheError(_CUT)
        return self._turn

    def close(self) -> None:
        """Cut the reply, unless it is complete.  Idempotent."""
        self._reader = None
        self._open.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self) -> str:
        while self._turn is None:
            if self._reader is None:
                raise AgentCacheError(_CUT)
            item = self._reader.poll()
            if isinstance(item, str):
                return item
            if item is not None:
                self._complete(item)
            else:
                self._read(self._reader)
        raise StopIteration

    def _read(self, reader: TurnReader) -> None:
        try:
            piece = next(self._pieces, None)
        except httpx.RequestError as error:
            raise stream_error(error, self._transport.base_url) from error
        if piece is None:
            reader.end()
        else:
            reader.feed(piece)

    def _complete(self, turn: Turn) -> None:
        # Reading to the end of the body keeps the connection for the next request.
        with contextlib.suppress(httpx.RequestError):
            for _ in self._pieces:
                pass
        self._turn = turn
        self._flight.finish(turn)
        self.close()


class AsyncChatStream:
    """The asynchronous twin of ``ChatStream``: ``async with``, ``async for``, ``await stream.result()``."""

    def __init__(self, transport: AsyncTransport, flight: Flight) -> None:
        self._transport = transport
        self._flight = flight
        self._open = AsyncExitStack()
        self._reader: TurnReader | None = None
        self._pieces: AsyncIterator[bytes] = _nothing()
        self._turn: Turn | None = None

    async def __aenter__(self) -> AsyncChatStream:
        async with AsyncExitStack() as stack:
            flight = stack.enter_context(self._flight)
            call = _calls.streamed(await self._transport.drive(flight.prepare()))
            try:
                response = await self._transport.open(call)
            except AgentCacheError as error:
                response = await self._transport.open(
                    _calls.streamed(await self._transport.drive(flight.recover(error)))
                )
            stack.push_async_callback(response.aclose)
            self._open = stack.pop_all()
        self._pieces = response.aiter_bytes()
        self._reader = TurnReader(self._transport.base_url, Reply(response.status_code, response.headers, b""))
        return self

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        try:
            return await self._next()
        except StopAsyncIteration:
            raise
        except BaseException:
            await self.close()
            raise

    async def result(self) -> Turn:
        """The whole turn; reads the rest of the stream first.

        Raises:
            AgentCacheError: the stream failed, or was closed before its end.
        """
        async for _ in self:
            pass
        if self._turn is None:
            raise AgentCacheError(_CUT)
        return self._turn

    async def close(self) -> None:
        """Cut the reply, unless it is complete.  Idempotent."""
        self._reader = None
        await self._open.aclose()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _next(self) -> str:
        while self._turn is None:
            if self._reader is None:
                raise AgentCacheError(_CUT)
            item = self._reader.poll()
            if isinstance(item, str):
                return item
            if item is not None:
                await self._complete(item)
            else:
                await self._read(self._reader)
        raise StopAsyncIteration

    async def _read(self, reader: TurnReader) -> None:
        try:
            piece = await anext(self._pieces, None)
        except httpx.RequestError as error:
            raise stream_error(error, self._transport.base_url) from error
        if piece is None:
            reader.end()
        else:
            reader.feed(piece)

    async def _complete(self, turn: Turn) -> None:
        # Reading to the end of the body keeps the connection for the next request.
        with contextlib.suppress(httpx.RequestError):
            async for _ in self._pieces:
                pass
        self._turn = turn
        self._flight.finish(turn)
        await self.close()


async def _nothing() -> AsyncIterator[bytes]:
    pieces: tuple[bytes, ...] = ()
    for piece in pieces:
        yield piece
