"""Connections: uvicorn's HTTP/1.1 protocol on h11, with an end to everything that a client can leave undone.

::

    connect ── head ──────────► body ──────────────► answer ───────────────► idle ── head ...
            head_timeout_s │    body_timeout_s │     send_timeout_s │        keep-alive
            408, or silence│    408            │     cut            │        closed
                           │    + 1 s a 16 KiB │     while nothing is taken

h11 is the one parser, whether or not a faster one is installed: it is strict about framing, where lenience is how requests
are smuggled past proxies, and parsing is nothing beside a forward pass.  What it refuses is answered in the envelope of all
other errors.  A connection that is refused is half closed, and what still comes is read and thrown away for a moment: to
close at once would reset it, and the client might never see why.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from agentcache.server.anthropic.errors import told_at
from agentcache.server.errors import ApiError
from agentcache.server.watch.exchanges import Exchange
from agentcache.server.watch.request_ids import HEADERS, chosen_id
from agentcache.settings import Settings

logger = logging.getLogger(__name__)

MAX_HEAD = 64 * 1024
"""Bytes of a request line and its headers."""
MAX_PIPELINED = 64 * 1024
"""Bytes that may wait behind a request that runs; a client that sends more is answered once more, and closed."""
BODY_RATE = 16 * 1024
"""Bytes of a body that give it a second more."""
LINGER_S = 2.0
"""How long a refused client is listened to."""
KEEP_ALIVE_S = 75
"""Agents think between turns; a connection that closes under them costs a retry."""
_SURPLUS = 128
"""Connections over the limit that are told so; beyond them they are cut."""
_SPARE_FILES = 128
_QUOTED = re.compile(r":? (?:bytearray\(|b['\"])")


@dataclass(frozen=True)
class Limits:
    """Of connections; times in seconds."""

    connections: int
    head_s: float
    body_s: float
    send_s: float

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        return cls(settings.max_connections, settings.head_timeout_s, settings.body_timeout_s, settings.send_timeout_s)


class HttpConfig(uvicorn.Config):
    """uvicorn's configuration, for ``Connection``."""

    def __init__(self, app: Any, limits: Limits, refused: Callable[[Exchange], None], **options: Any) -> None:
        super().__init__(_Contained(app), http=Connection, ws="none", timeout_keep_alive=KEEP_ALIVE_S, **options)
        self.limits = limits
        self.refused = refused
        """Told of what is answered here and never reaches the app."""


class _Contained:
    """An app whose failures cost its clients no more than their answer: one that was told of a 500 may ask again."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answered = False

        async def noted_send(message: Message) -> None:
            nonlocal answered
            await send(message)
            answered = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            await self._app(scope, receive, noted_send)
        except Exception:
            if not answered:
                raise
            logger.exception("%s %s failed", scope["method"], scope["path"])


class _Requests(h11.Connection):
    """h11's parser; what cannot be accepted is kept as ``refusal``, and then nothing more is parsed."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self.refusal: ApiError | None = None

    @property
    def unparsed(self) -> bytes:
        return self.trailing_data[0]

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            event = super().next_event() if self.refusal is None else h11.NEED_DATA
        except h11.RemoteProtocolError as error:
            self.refusal = self._malformed(error)
            return h11.NEED_DATA
        if isinstance(event, h11.Request):
            self.refusal = _unwelcome(event)
        return event if self.refusal is None else h11.NEED_DATA

    def _malformed(self, error: h11.RemoteProtocolError) -> ApiError:
        if error.error_status_hint == 431:
            if self.our_state is not h11.IDLE:
                return ApiError(
                    400, "the request is not valid HTTP/1.1: the head of a chunk is too long", code="invalid_http"
                )
            return _too_long(431 if b"\n" in self.unparsed else 414)
        why = _QUOTED.split(str(error))[0]
        return ApiError(
            error.error_status_hint,
            f"the request is not valid HTTP/1.1: {why[:1].lower()}{why[1:]}",
            code="invalid_http",
        )


def _unwelcome(request: h11.Request) -> ApiError | None:
    """Why a well-formed head is refused all the same."""
    if len(request.target) > MAX_HEAD:
        return _too_long(414)
    if len(request.target) + sum(len(name) + len(value) + 4 for name, value in request.headers) > MAX_HEAD:
        return _too_long(431)
    if request.http_version not in (b"1.0", b"1.1"):
        version = request.http_version.decode("ascii")
        return ApiError(505, f"got HTTP/{version}, expected HTTP/1.1", code="http_version_not_supported")
    names = {name for name, _ in request.headers}
    if {b"content-length", b"transfer-encoding"} <= names:
        # A proxy that believes the other one of the two sees other requests than we do.
        why = "content-length and transfer-encoding: got both, expected the one that says where the body ends"
        return ApiError(400, why, code="invalid_http")
    return None


def _too_long(status: int) -> ApiError:
    what, code = ("address", "address_too_long") if status == 414 else ("headers", "headers_too_large")
    return ApiError(status, f"the {what} of the request: got more than {MAX_HEAD:,} bytes", code=code)


class Connection(H11Protocol):
    """One client's connection."""

    conn: _Requests
    transport: asyncio.Transport

    def __init__(self, config: HttpConfig, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self.conn = _Requests()
        self._limits = config.limits
        self._refused = config.refused
        self._deaf = False
        """Bytes that still come are thrown away."""
        self._surplus = False
        self._awaited: tuple[str, object] | None = None
        """What must have come when ``_deadline`` is over: ("head" or "body", the request before it or of it)."""
        self._due = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._sending: asyncio.TimerHandle | None = None

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        surplus = len(self.connections) - self._limits.connections
        self._surplus = surplus > 0
        if surplus > _SURPLUS:
            transport.abort()
            return
        self._await("head", min(self._limits.head_s, LINGER_S) if self._surplus else self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._sending):
            if timer is not None:
                timer.cancel()
        self._deadline = self._sending = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf or self.conn.their_state in (h11.MUST_CLOSE, h11.CLOSED):
            return
        if self._surplus:
            self._refuse(_busy(self._limits.connections))
            return
        if self._awaited is not None and self._awaited[0] == "body" and not self.cycle.response_complete:
            self._due += len(data) / BODY_RATE
        super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_sending()

    # -- what uvicorn calls

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.refusal is not None:
            self._refuse(self.conn.refusal)
            return
        self._hear_on()
        their = self.conn.their_state
        if their is h11.SEND_BODY:
            self._await("body", self._limits.body_s)
        elif their is h11.IDLE and self.conn.unparsed:
            self._await("head", self._limits.head_s)
        else:
            self._await(None, 0)
            if their is h11.IDLE and self.timeout_keep_alive_task is None:  # after a body that nobody wanted
                idle = self.timeout_keep_alive
                self.timeout_keep_alive_task = self.loop.call_later(idle, self.timeout_keep_alive_handler)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._watch_sending()

    def _should_upgrade(self) -> bool:
        """Never, and no warning in the log: what else was asked for is served."""
        return False

    # -- deadlines

    def _await(self, what: str | None, seconds: float) -> None:
        awaited = None if what is None else (what, self.cycle)
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if awaited is not None:
            self._due = self.loop.time() + seconds
            self._deadline = self.loop.call_at(self._due, self._expired)

    def _expired(self) -> None:
        self._deadline = None
        if self._awaited is None or self.transport.is_closing():
            return
        what = self._awaited[0]
        if what == "body" and self.flow.read_paused:  # it is we who do not read
            self._due = self.loop.time() + self._limits.body_s
        if self.loop.time() < self._due:
            self._deadline = self.loop.call_at(self._due, self._expired)
        elif what == "head" and not self.conn.unparsed:  # browsers connect in advance and may never ask
            self.transport.close()
        else:
            self._refuse(too_slow(what, self._limits.head_s if what == "head" else self._limits.body_s))

    def _watch_sending(self) -> None:
        if self._sending is None:
            self._unsent = self.transport.get_write_buffer_size()
            self._sending = self.loop.call_later(self._limits.send_s, self._check_sending)

    def _check_sending(self) -> None:
        """Nothing is added while the transport is full, so a client that takes anything makes the rest smaller."""
        self._sending = None
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent >= self._unsent:
            # A reset, so that what the system has in its own buffers is not offered for minutes more.
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        elif unsent:
            self._watch_sending()

    # -- the end

    def _hear_on(self) -> None:
        """Go on reading behind a request that runs: an end of the connection is seen by those who read only."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or self.conn.their_state is not h11.DONE:
            return
        self.flow.resume_reading()
        if len(self.conn.unparsed) > MAX_PIPELINED:
            self._deaf = True
            cycle.keep_alive = False

    def _refuse(self, error: ApiError) -> None:
        """Answer ``error`` unless an answer has begun, and end the connection."""
        self._deaf = True
        self._await(None, 0)
        self._unset_keepalive_if_required()
        cycle = self.cycle
        running = cycle is not None and not cycle.response_complete
        if running:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.transport.is_closing():
            return
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # nothing can be said any more
            self.transport.close()
            return
        told = cycle.scope["state"].get("exchange") if running else None
        self._answer(error, told, cycle.scope if running else None)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.abort)

    def _answer(self, error: ApiError, running: Exchange | None, scope: Mapping[str, object] | None) -> None:
        """
        Args:
            scope: of the request whose head came, whether or not the app has begun with it.
        """
        request_id = chosen_id(None) if running is None else running.request_id
        path, head_only = ("", False) if scope is None else (str(scope["path"]), scope["method"] == "HEAD")
        body = json.dumps(told_at(path, error, request_id), separators=(",", ":")).encode()
        fields = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **dict.fromkeys(HEADERS, request_id),
            **(error.headers or {}),
        }
        headers = [
            *self.server_state.default_headers,
            *((name.encode(), value.encode()) for name, value in fields.items()),
        ]
        events = [
            h11.Response(status_code=error.status, headers=headers, reason=HTTPStatus(error.status).phrase),
            h11.Data(data=b"" if head_only else body),
            h11.EndOfMessage(),
        ]
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        sent = 0 if head_only else len(body)
        if running is None:
            self._refused(Exchange(request_id, "other", "-", self.client, status=error.status, sent_bytes=sent))
        else:
            running.refused = (error.status, sent)


def too_slow(what: str, seconds: float) -> ApiError:
    """A 408.

    Args:
        what: ``head`` or ``body``.
        seconds: that it had to arrive in; a body gets more by its size.
    """
    more = "" if what == "head" else f", and one more for each {BODY_RATE:,} bytes of it"
    return ApiError(408, f"the {what} of the request did not arrive in {seconds:g} seconds{more}", code="too_slow")


def _busy(limit: int) -> ApiError:
    why = f"{limit:,} clients are connected, and no more may (--max-connections)"
    return ApiError(503, why, code="too_many_connections", headers={"retry-after": "1"})


def allow_files(connections: int) -> None:
    """Let this process have as many files open as so many connections need; many systems begin with 1,024."""
    try:
        import resource
    except ImportError:  # not on Windows, which has no such limit
        return
    wanted = connections + _SURPLUS + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        message = "this process may have %d files open, and --max-connections %d takes %d: see ulimit -n"
        logger.warning(message, allowed, connections, wanted)
