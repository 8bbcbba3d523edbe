"""httpx's way to the app: a transport for threads and one for event loops, over the same exchanges.

Unlike httpx's own for ASGI apps, what the app sends is read as it is sent, and a reader that leaves is noticed by the app.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

import httpx

from agentcache.local.exchange import Asked, Exchange, Head
from agentcache.local.runtime import LocalRuntime

T = TypeVar("T")
_EXTENSIONS = {"http_version": b"HTTP/1.1"}


class LocalTransport(httpx.BaseTransport):
    """Safe to share between threads.

    Args:
        owner: closing this transport ends the engine.
    """

    def __init__(self, runtime: LocalRuntime, *, owner: bool) -> None:
        self._runtime = runtime
        self._owner = owner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._runtime.start()
        answer = _Answer(self._runtime, request)
        try:
            head = self._runtime.checked(answer.begin(request))
        except BaseException:  # Ctrl-C among them
            answer.close()
            raise
        return _response(head, answer)

    def close(self) -> None:
        if self._owner:
            self._runtime.close()


class AsyncLocalTransport(httpx.AsyncBaseTransport):
    """The asynchronous twin, usable from any event loop.  Loading the model blocks none."""

    def __init__(self, runtime: LocalRuntime, *, owner: bool) -> None:
        self._runtime = runtime
        self._owner = owner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self._runtime.start_beside()
        answer = _AsyncAnswer(self._runtime, request)
        try:
            head = self._runtime.checked(await answer.begin(request))
        except BaseException:
            answer.hang_up()
            raise
        return _response(head, answer)

    async def aclose(self) -> None:
        if self._owner:
            await asyncio.to_thread(self._runtime.close)


class _Answer(httpx.SyncByteStream):
    """One exchange, read by one thread at a time."""

    def __init__(self, runtime: LocalRuntime, request: httpx.Request) -> None:
        self._runtime = runtime  # an open answer keeps the engine
        self._news = threading.Event()
        self._exchange = _exchange(runtime, request, self._news.set)
        self._read_s, self._write_s = _timeouts(request)

    def begin(self, request: httpx.Request) -> Head:
        exchange = self._exchange
        whole = _whole(request)
        if whole is not None:
            exchange.feed(whole)
            exchange.end_of_body()
        self._runtime.begin(exchange)
        if whole is None:
            assert isinstance(request.stream, httpx.SyncByteStream)
            for piece in request.stream:
                if not self._wait(exchange.takes_more, self._write_s, httpx.WriteTimeout):
                    break
                exchange.feed(piece)
            exchange.end_of_body()
        return self._wait(exchange.head, self._read_s, httpx.ReadTimeout)

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._wait(self._exchange.piece, self._read_s, httpx.ReadTimeout):
            yield piece

    def close(self) -> None:
        self._exchange.hang_up()

    def __del__(self) -> None:
        self.close()  # nobody can read it any more: let the app know

    def _wait(self, look: Callable[[], T | None], timeout_s: float | None, late: type[httpx.TimeoutException]) -> T:
        while True:
            self._news.clear()  # before looking, so that what comes in between is seen
            found = look()
            if found is not None:
                return found
            if not self._news.wait(timeout_s):
                raise late(f"nothing came within {timeout_s:g} seconds")


class _AsyncAnswer(httpx.AsyncByteStream):
    """One exchange, read by one task at a time."""

    def __init__(self, runtime: LocalRuntime, request: httpx.Request) -> None:
        self._runtime = runtime
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._exchange = _exchange(runtime, request, _waker(self._loop, self._news))
        self._read_s, self._write_s = _timeouts(request)

    async def begin(self, request: httpx.Request) -> Head:
        exchange = self._exchange
        whole = _whole(request)
        if whole is not None:
            exchange.feed(whole)
            exchange.end_of_body()
        self._runtime.begin(exchange)
        if whole is None:
            assert isinstance(request.stream, httpx.AsyncByteStream)
            async for piece in request.stream:
                if not await self._wait(exchange.takes_more, self._write_s, httpx.WriteTimeout):
                    break
                exchange.feed(piece)
            exchange.end_of_body()
        return await self._wait(exchange.head, self._read_s, httpx.ReadTimeout)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self._wait(self._exchange.piece, self._read_s, httpx.ReadTimeout):
            yield piece

    async def aclose(self) -> None:
        self.hang_up()

    def hang_up(self) -> None:
        self._exchange.hang_up()

    def __del__(self) -> None:
        self.hang_up()

    async def _wait(
        self, look: Callable[[], T | None], timeout_s: float | None, late: type[httpx.TimeoutException]
    ) -> T:
        while True:
            self._news.clear()
            found = look()
            if found is not None:
                return found
            try:
                await asyncio.wait_for(self._news.wait(), timeout_s)
            except asyncio.TimeoutError:
                raise late(f"nothing came within {timeout_s:g} seconds") from None


def _waker(loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> Callable[[], None]:
    def wake() -> None:
        try:
            loop.call_soon_threadsafe(news.set)
        except RuntimeError:  # the reader's loop was closed: nobody is left to hear it
            return

    return wake


def _exchange(runtime: LocalRuntime, request: httpx.Request, wake: Callable[[], None]) -> Exchange:
    asked = Asked(request.method, request.url, request.headers.raw)
    return Exchange(asked, wake, runtime.settings.send_timeout_s)


def _timeouts(request: httpx.Request) -> tuple[float | None, float | None]:
    """Seconds of silence that end reading and writing."""
    given = request.extensions.get("timeout", {})
    return given.get("read"), given.get("write")


def _whole(request: httpx.Request) -> bytes | None:
    """The body, where it is there already."""
    return b"".join(request.stream) if isinstance(request.stream, httpx.ByteStream) else None


def _response(head: Head, answer: httpx.SyncByteStream | httpx.AsyncByteStream) -> httpx.Response:
    return httpx.Response(head.status, headers=list(head.headers), stream=answer, extensions=_EXTENSIONS)
