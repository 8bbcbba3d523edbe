"""One request and its answer, between whoever has it and the app of an engine, on the app's event loop.

::

    who asks                                         the app
    Sent(method, path, headers, body) ─────────────► receive(): the body, then nothing until the asker goes
    async for batch in answered(app, sent):
        Head(status, headers), bytes, … ◄─────────── send(): waits while HIGH_WATER bytes are not taken
        bytes, …, last ◄──────────────────────────── send()
    closed or cancelled before its end ────────────► receive() says http.disconnect

What is said between two processes is plain data; nothing here knows how it travels.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import httpx

from agentcache.local.exchange import Exchange, Head, Headers, http_scope

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope

ENDING_S = 5.0
"""How long an app may go on after it was told that nobody listens any more; then it is cancelled."""


class Sent(NamedTuple):
    """A request as it came, whole.

    Attributes:
        target: path and query as the client sent them, percent-encoded.
        client: address and port, where they are known.
    """

    method: str
    target: bytes
    headers: Headers
    body: bytes = b""
    scheme: str = "http"
    client: tuple[str, int] | None = None
    server: tuple[str, int | None] | None = None
    http_version: str = "1.1"

    @property
    def path(self) -> str:
        """Decoded, without the query."""
        return unquote(self.target.partition(b"?")[0].decode("latin-1"))

    def scope(self) -> dict[str, Any]:
        scope = http_scope(self.method, self.path, self.target, self.headers, self.scheme)
        return {**scope, "http_version": self.http_version, "server": self.server, "client": self.client}


class Batch(NamedTuple):
    """What was said since the last one: of a whole answer one head, then pieces that are not empty."""

    parts: Sequence[Head | bytes]
    last: bool


class AnswerCutError(Exception):
    """The app ended without the end of its answer; the cause is in its log."""


def sent_from(scope: Scope, body: bytes, *, below: str = "") -> Sent:
    """The request that ``scope`` is about.

    Args:
        below: beginning of the path that is taken off.
    """
    mounted = scope.get("root_path", "")
    raw = scope.get("raw_path") or scope["path"].encode()
    path = raw.removeprefix(f"{mounted}{below}".encode()) or b"/"
    query = scope.get("query_string", b"")
    return Sent(
        method=scope["method"],
        target=path + b"?" + query if query else path,
        headers=[(bytes(name), bytes(value)) for name, value in scope["headers"]],
        body=body,
        scheme=scope.get("scheme", "http"),
        client=_address(scope.get("client")),
        server=_address(scope.get("server")),
        http_version=scope.get("http_version", "1.1"),
    )


async def answered(app: ASGIApp, sent: Sent) -> AsyncIterator[Batch]:
    """What ``app`` answers, as it comes.

    Close it, or cancel the task that iterates it, and the app is told that its client hung up.

    Raises:
        AnswerCutError: the app failed before the end of its answer.
    """
    news = asyncio.Event()
    exchange = Exchange(sent, news.set, patience_s=None)
    exchange.feed(sent.body)
    exchange.end_of_body()
    task = asyncio.ensure_future(exchange.run(app))
    begun = last = False
    try:
        while not last:
            news.clear()
            piece = exchange.piece()
            head = None if begun else exchange.head()
            parts = [part for part in (head, piece) if part]
            last = exchange.whole
            if parts or last:
                begun = True
                yield Batch(parts, last)
            else:
                await news.wait()
    except httpx.RemoteProtocolError as error:
        raise AnswerCutError(str(error)) from error
    finally:
        if not exchange.whole:
            exchange.hang_up()
            _watch_ending(task)


def _watch_ending(task: asyncio.Task[None]) -> None:
    """Let ``task`` end by itself, as a request does whose client hung up, but not for ever."""
    timer = asyncio.get_running_loop().call_later(ENDING_S, task.cancel)
    task.add_done_callback(lambda _: timer.cancel())


def _address(given: Any) -> Any:
    """A client or a server, as a tuple that can be sent."""
    return None if given is None else tuple(given)
