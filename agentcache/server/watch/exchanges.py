"""Every HTTP request from its first byte to the last one of its answer, for metrics, access log and traces."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentcache.server.errors import CLIENT_GONE

if TYPE_CHECKING:
    from agentcache.server.watch.journal import RequestRecord

logger = logging.getLogger(__name__)

UNKNOWN = "unknown"
"""The route of paths that have none, so that no client can make up label values."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PARENT = ("traceparent", "tracestate")


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and its answer; complete once its readers get it.

    Attributes:
        path: as the client sent it, decoded, without the query: nothing that was checked.
        method: one of HTTP's usual ones, or ``other``.
        route: pattern of the route that took it (``/v1/sessions/{session_id}``), or ``unknown``.
        client, server: address and port of either side, where they are known.
        parent: W3C headers that name the caller's span.
        started: Unix seconds.
        total_s: seconds until the last byte of the answer was handed to the socket, or until it was given up.
        status: as sent; 499 where the client hung up before the end, 500 where nothing was sent.
        refused: status and bytes of what ended its connection in place of an answer, such as 408 for a slow body.
        sent_bytes: of the answer's body.
        record: what the request generated, if it was one that generates; until its readers have been told.
    """

    request_id: str
    method: str
    path: str
    client: tuple[str, int] | None = None
    server: tuple[str, int | None] | None = None
    parent: Mapping[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    total_s: float = 0.0
    route: str = UNKNOWN
    status: int = 500
    streamed: bool = False
    sent_bytes: int = 0
    hung_up: bool = False
    refused: tuple[int, int] | None = None
    record: RequestRecord | None = None


Reader = Callable[[Exchange], None]


class Exchanges:
    """Who is told of exchanges, and which are open.  Used on the event loop only."""

    def __init__(self) -> None:
        self.open: set[Exchange] = set()
        self._readers: list[Reader] = []

    def subscribe(self, reader: Reader) -> None:
        """``reader`` is called with each exchange that ends; it must not block."""
        self._readers.append(reader)

    def end(self, exchange: Exchange) -> None:
        self.open.discard(exchange)
        for reader in self._readers:
            try:
                reader(exchange)
            except Exception:
                logger.exception("a reader of exchanges failed")
        exchange.record = None  # the journal keeps the record, and that its exchange


class ExchangeWatch:
    """ASGI middleware inside ``RequestIds``; puts the exchange into ``scope["state"]["exchange"]``.

    Messages pass one by one, as they come; only counted.
    """

    def __init__(self, app: ASGIApp, exchanges: Exchanges) -> None:
        self._app = app
        self._exchanges = exchanges

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _opened(scope)
        scope["state"]["exchange"] = exchange
        self._exchanges.open.add(exchange)
        began = time.perf_counter()
        done = False

        async def watched_receive() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not done:
                exchange.hung_up = True
            return message

        async def counted_send(message: Message) -> None:
            nonlocal done
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                exchange.streamed = (
                    Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream")
                )
            await send(message)
            if message["type"] == "http.response.body":
                exchange.sent_bytes += len(message.get("body", b""))
                if not message.get("more_body", False):
                    done = True
                    exchange.total_s = time.perf_counter() - began
                    self._exchanges.open.discard(exchange)

        try:
            await self._app(scope, watched_receive, counted_send)
        finally:
            if not done:
                exchange.total_s = time.perf_counter() - began
            if exchange.refused is not None:
                exchange.hung_up = False
                exchange.status, exchange.sent_bytes = exchange.refused
            elif exchange.hung_up:
                exchange.status = CLIENT_GONE
            exchange.route = getattr(scope.get("route"), "path", UNKNOWN)
            self._exchanges.end(exchange)


def _opened(scope: Scope) -> Exchange:
    headers = Headers(scope=scope)
    return Exchange(
        request_id=scope["state"]["request_id"],
        method=scope["method"] if scope["method"] in _METHODS else "other",
        path=scope["path"],
        client=scope.get("client"),
        server=scope.get("server"),
        parent={name: headers[name] for name in _PARENT if name in headers},
    )
