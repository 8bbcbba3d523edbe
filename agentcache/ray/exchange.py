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
import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Scope

logger = logging.getLogger(__name__)

HIGH_WATER = 64 * 1024
"""Bytes of an answer that may wait to be taken; beyond them the app waits."""
ENDING_S = 5.0
"""How long an app may go on after it was told that nobody listens any more; then it is cancelled."""

Headers = Sequence[tuple[bytes, bytes]]


class Sent(NamedTuple):
    """A request as it came, whole.

    Attributes:
        target: path and query as the client sent them, percent-encoded.
        root: part of the path that was taken off ``target``, such as ``/replicas/r1``.
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
    root: str = ""

    @property
    def path(self) -> str:
        """Decoded, without the query."""
        return unquote(self.target.partition(b"?")[0].decode("latin-1"))

    def scope(self) -> dict[str, Any]:
        """For an app that stands at the root; a new one each time, since apps write into it."""
        raw_path, _, query = self.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self.http_version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": self.method,
            "root_path": "",
            "path": self.path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": list(self.headers),
            "state": {},
        }


class Head(NamedTuple):
    """How an answer begins."""

    status: int
    headers: Headers


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
        root=f"{mounted}{below}",
    )


async def answered(app: ASGIApp, sent: Sent) -> AsyncIterator[Batch]:
    """What ``app`` answers, as it comes.

    Close it, or cancel the task that iterates it, and the app is told that its client hung up.

    Raises:
        AnswerCutError: the app failed before the end of its answer.
    """
    exchange = _Exchange(sent)
    task = asyncio.ensure_future(exchange.run(app))
    try:
        while True:
            batch = await exchange.next()
            yield batch
            if batch.last:
                return
    finally:
        if not exchange.complete:
            exchange.hang_up()
            _watch_ending(task)


def _watch_ending(task: asyncio.Task[None]) -> None:
    """Let ``task`` end by itself, as a request does whose client hung up, but not for ever."""
    timer = asyncio.get_running_loop().call_later(ENDING_S, task.cancel)
    task.add_done_callback(lambda _: timer.cancel())


class _Exchange:
    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        self._body_given = False
        self._gone = asyncio.Event()
        self._parts: list[Head | bytes] = []
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._head: Head | None = None
        self.complete = False
        self._over = False

    # -- who asks ---------------------------------------------------------------------------------------------------

    async def next(self) -> Batch:
        """
        Raises:
            AnswerCutError
        """
        while not (self._parts or self.complete):
            if self._over:
                raise AnswerCutError("the app ended without the end of its answer")
            self._news.clear()
            await self._news.wait()
        parts, self._parts = self._parts, []
        self._waiting_bytes = 0
        self._room.set()
        return Batch(parts, self.complete)

    def hang_up(self) -> None:
        self._gone.set()
        self._room.set()

    # -- the app ----------------------------------------------------------------------------------------------------

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self._sent.scope(), self._receive, self._send)
        except Exception:
            logger.exception("%s %s failed", self._sent.method, self._sent.path)
        finally:
            self._over = True
            self._news.set()

    async def _receive(self) -> Message:
        if not self._body_given:
            self._body_given = True
            return {"type": "http.request", "body": self._sent.body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        while self._waiting_bytes > HIGH_WATER and not self._gone.is_set():
            self._room.clear()
            await self._room.wait()
        if self._gone.is_set() or self.complete:
            return
        if message["type"] == "http.response.start":
            self._head = Head(message["status"], [(bytes(n), bytes(v)) for n, v in message.get("headers", ())])
            return  # told with what follows at once: one message fewer on the way
        if self._head is not None:
            self._parts.append(self._head)
            self._head = None
        body = b"" if self._sent.method == "HEAD" else bytes(message.get("body", b""))
        if body:
            self._parts.append(body)
            self._waiting_bytes += len(body)
        if not message.get("more_body", False):
            self.complete = True
            self._gone.set()  # as a server says it of a client that has its answer
            self._over = True
        self._news.set()


def _address(given: Any) -> Any:
    """A client or a server, as a tuple that can be sent."""
    return None if given is None else tuple(given)
