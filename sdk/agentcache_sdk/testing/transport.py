"""The engine in the place of the network: a transport for httpx, synchronous and asynchronous."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import unquote

import httpx

from agentcache_sdk.testing._http import AnyAnswer, Asked, Refusal, Stream, parse_body
from agentcache_sdk.testing._routes import answer
from agentcache_sdk.testing._state import HttpCall, State

_NO_KEY = "anonymous"


class FakeTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """For any client that is built on httpx; made by ``FakeEngine.transport``.

    >>> import httpx
    >>> from agentcache_sdk.testing import FakeEngine
    >>> http = httpx.Client(base_url="http://agentcache.test", transport=FakeEngine().transport)
    >>> http.get("/health").json()
    {'status': 'ok'}
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._respond(request, request.read())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        content = await request.aread()
        await asyncio.sleep(0)  # others get their turn, as they would while the network is at work
        return self._respond(request, content)

    def _respond(self, request: httpx.Request, content: bytes) -> httpx.Response:
        state = self._state
        body: dict[str, Any] = {}
        status: int | None = None
        try:
            with state.lock:
                try:
                    body = parse_body(content)
                    said: AnyAnswer = answer(state, _asked(request, body))
                except Refusal as refusal:
                    said = refusal.answer()
            status = 200 if isinstance(said, Stream) else said.status
        finally:
            state.calls.append(HttpCall(request.method, request.url.path, body, status))
        return _response(said, state)


def _asked(request: httpx.Request, body: dict[str, Any]) -> Asked:
    timeouts = request.extensions.get("timeout") or {}
    return Asked(
        method=request.method,
        path=unquote(request.url.path).rstrip("/"),
        query=request.url.query.decode(),
        owner=request.headers.get("authorization", _NO_KEY),
        body=body,
        patience=timeouts.get("read"),
    )


def _response(said: AnyAnswer, state: State) -> httpx.Response:
    number = f"req-{len(state.calls)}"
    if isinstance(said, Stream):
        headers = {"content-type": "text/event-stream", "x-request-id": number}
        return httpx.Response(200, headers=headers, stream=_Events(said, state))
    content = json.dumps(said.body, ensure_ascii=False).encode("utf-8", "surrogatepass")
    headers = {"content-type": "application/json", "x-request-id": number, **said.headers}
    return httpx.Response(said.status, headers=headers, content=content)


class _Events(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The events of a stream, one by one as they are read."""

    def __init__(self, said: Stream, state: State) -> None:
        self._said = said
        self._state = state

    def __iter__(self) -> Iterator[bytes]:
        return self._said.events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._said.events:
            yield piece
            await asyncio.sleep(0)

    def close(self) -> None:
        with self._state.lock:
            self._said.end()

    async def aclose(self) -> None:
        self.close()
