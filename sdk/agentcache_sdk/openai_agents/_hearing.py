"""What the server says about the cache, heard from under the official client.

The frameworks keep of an answer what OpenAI's API defines.  The ``agentcache`` object is read from the bytes as they come in,
of plain answers and of streams, so that nothing depends on how a version of a library passes its objects on.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakKeyDictionary

import httpx
import openai

from agentcache_sdk.async_client import AsyncClient
from agentcache_sdk.client import Client

Api = Literal["chat", "responses"]
_LIMITS: dict[str, Any] = {"max_connections": None, "max_keepalive_connections": 64}


@dataclass
class Exchange:
    """One request of a model's and what was answered.

    Attributes:
        body: the request.
        cache: the ``agentcache`` object of the answer; ``None`` before it came, and from servers that send none.
    """

    body: dict[str, Any] = field(default_factory=dict)
    cache: dict[str, Any] | None = None

    def take(self, answer: Any) -> None:
        """An answer's body, or an event of a stream."""
        inner = answer.get("response", answer) if isinstance(answer, dict) else None
        cache = inner.get("agentcache") if isinstance(inner, dict) else None
        if isinstance(cache, dict):
            self.cache = cache


# The exchange that the running task is about to make: what a client's hook is called with says nothing about its caller.
_EXCHANGE: ContextVar[Exchange | None] = ContextVar("agentcache_exchange", default=None)


@contextmanager
def heard(exchange: Exchange) -> Iterator[None]:
    """Requests that are made in here are ``exchange``'s; of several (retries), the last one."""
    token = _EXCHANGE.set(exchange)
    try:
        yield
    finally:
        _EXCHANGE.reset(token)


@dataclass(frozen=True)
class HearingClient:
    """The official client, and what closes the connections that it made in the running event loop."""

    official: openai.AsyncOpenAI
    disconnect: Callable[[], Awaitable[None]]


def hearing_client(client: Client | AsyncClient) -> HearingClient:
    """The official client with ``client``'s server, key, timeout and retries, and with ears.

    Raises:
        TypeError: ``client`` is neither of the SDK's, or runs an engine in this process without being asynchronous.
    """
    if not isinstance(client, (Client, AsyncClient)):
        raise TypeError(f"client: got {type(client).__name__}, expected agentcache_sdk.Client or AsyncClient")
    make = getattr(client, "http_transport", None)
    library = _httpx() if make is None else httpx
    transport = _transport(library, make or (lambda: library.AsyncHTTPTransport(limits=library.Limits(**_LIMITS))))
    official = client.openai()
    if isinstance(official, openai.OpenAI):
        if make is not None:
            raise TypeError("client: got a LocalClient, expected an AsyncLocalClient: openai-agents is asynchronous")
        official = openai.AsyncOpenAI(
            api_key=official.api_key,
            base_url=official.base_url,
            timeout=official.timeout,
            max_retries=official.max_retries,
        )
    hearing = official.with_options(
        http_client=library.AsyncClient(transport=transport, timeout=official.timeout),
        default_headers={"accept-encoding": "identity"},  # what is read here is read before anything unpacks it
    )
    return HearingClient(hearing, transport.aclose)


def _httpx() -> Any:
    """The HTTP library that openai is built on: httpx, or in later versions its successor."""
    client = next(kind for kind in openai.DefaultAsyncHttpxClient.__mro__ if kind.__name__ == "AsyncClient")
    return importlib.import_module(client.__module__.partition(".")[0])


class _Listener:
    """A transport that hears answers, with connections of its own for every event loop.

    A model lives as long as its agent, which may be run by ``asyncio.run`` again and again, a new loop each time.
    """

    def __init__(self, library: Any, make: Callable[[], Any]) -> None:
        self._library = library
        self._make = make
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    async def handle_async_request(self, request: Any) -> Any:
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            self._by_loop[loop] = self._make()
        response = await self._by_loop[loop].handle_async_request(request)
        exchange = _EXCHANGE.get()
        if exchange is not None and response.status_code == 200 and request.method == "POST":
            exchange.body = json.loads(request.content)
            exchange.cache = None
            streamed = response.headers.get("content-type", "").startswith("text/event-stream")
            response.stream = _stream(self._library, response.stream, AnswerReader(exchange, streamed))
        return response

    async def aclose(self) -> None:
        mine = self._by_loop.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine.aclose()


def _transport(library: Any, make: Callable[[], Any]) -> Any:
    """A listener of the class that ``library`` insists on, over transports that ``make`` makes."""
    return type("ListeningTransport", (_Listener, library.AsyncBaseTransport), {})(library, make)


@dataclass
class AnswerReader:
    """Bytes of one answer, in pieces of any size."""

    exchange: Exchange
    streamed: bool
    rest: bytes = b""

    def feed(self, piece: bytes) -> None:
        self.rest += piece
        if self.streamed:
            *lines, self.rest = self.rest.split(b"\n")
            for line in lines:
                self._line(line)

    def end(self) -> None:
        if self.streamed:
            self._line(self.rest)
        else:
            self._json(self.rest)

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:") and b'"agentcache"' in line:
            self._json(line[len(b"data:") :])

    def _json(self, text: bytes) -> None:
        try:
            answer = json.loads(text)
        except ValueError:
            return  # a cut answer: the official client is about to say so
        self.exchange.take(answer)


class _Ears:
    """A stream of bytes that passes on what it hears."""

    def __init__(self, stream: Any, reader: AnswerReader) -> None:
        self._stream = stream
        self._reader = reader

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._reader.feed(piece)
            yield piece
        self._reader.end()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _stream(library: Any, stream: Any, reader: AnswerReader) -> Any:
    """``stream`` with ears, of the class that ``library`` insists on."""
    return type("HeardStream", (_Ears, library.AsyncByteStream), {})(stream, reader)
