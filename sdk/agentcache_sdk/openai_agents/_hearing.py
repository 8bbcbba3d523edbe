"""What the server says about the cache, heard from under the official client.

The frameworks keep of an answer what OpenAI's API defines.  The ``agentcache`` object is read from the bytes as they come in,
of plain answers and of streams, so that nothing depends on how a version of a library passes its objects on.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

import openai

from agentcache_sdk.async_client import AsyncClient
from agentcache_sdk.client import Client

Api = Literal["chat", "responses"]


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


def official_client(client: Client | AsyncClient) -> openai.AsyncOpenAI:
    """The official client with ``client``'s server, key, timeout and retries, and with ears.

    Raises:
        TypeError: ``client`` is neither of the SDK's.
    """
    if not isinstance(client, (Client, AsyncClient)):
        raise TypeError(f"client: got {type(client).__name__}, expected agentcache_sdk.Client or AsyncClient")
    plain = client.openai()
    return openai.AsyncOpenAI(
        api_key=plain.api_key,
        base_url=plain.base_url,
        timeout=plain.timeout,
        max_retries=plain.max_retries,
        default_headers={"accept-encoding": "identity"},  # what is read here is read before anything unpacks it
        http_client=openai.DefaultAsyncHttpxClient(event_hooks={"response": [_listen]}),
    )


async def _listen(response: Any) -> None:
    exchange = _EXCHANGE.get()
    if exchange is None or response.status_code != 200:
        return
    exchange.body = json.loads(response.request.content)
    exchange.cache = None
    streamed = response.headers.get("content-type", "").startswith("text/event-stream")
    response.stream = _with_ears(response, AnswerReader(exchange, streamed))


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


def _with_ears(response: Any, reader: AnswerReader) -> Any:
    """A stream of the class that ``response``'s library insists on: httpx or its successor, whichever openai is built on."""
    library = importlib.import_module(type(response).__module__.partition(".")[0])
    kind = type("HeardStream", (_Ears, library.AsyncByteStream), {})
    return kind(response.stream, reader)
