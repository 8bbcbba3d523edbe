"""One request and its answer, between a reader on any thread and the app on its event loop.

::

    reader's thread                                     app's loop
    feed(piece), end_of_body() ──── body ─────────────► receive()
    head(), piece() ◄────────────── head, pieces ────── send(), which waits while HIGH_WATER bytes lie unread
    hang_up() ────────────────────────────────────────► receive() says http.disconnect, send() is not heard any more

There is no lock.  Every field is written by one side only, and each side tells the other after it wrote, so that ``hang_up`` may
also be called by the garbage collector, on whatever thread and in the middle of whatever it runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import httpx

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message

logger = logging.getLogger(__name__)

HIGH_WATER = 64 * 1024
"""Bytes that may lie unread in either direction, as many as a connection's buffers take."""

Headers = Sequence[tuple[bytes, bytes]]


class Head(NamedTuple):
    status: int
    headers: Headers


class Request(Protocol):
    """What an app is asked, without the body."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str:
        """Decoded, without the query."""

    def scope(self) -> dict[str, Any]:
        """As ASGI has it; a new one each time, since apps write into it."""


def http_scope(method: str, path: str, target: bytes, headers: Headers, scheme: str) -> dict[str, Any]:
    """The scope of a request to an app that stands at the root.

    Args:
        path: decoded, without the query.
        target: path and query, percent-encoded.
    """
    raw_path, _, query = target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": None,
        "client": None,
        "scheme": scheme,
        "method": method,
        "root_path": "",
        "path": path,
        "raw_path": raw_path,
        "query_string": query,
        "headers": [(name.lower(), value) for name, value in headers],
        "state": {},
    }


class Asked(NamedTuple):
    """A request of httpx."""

    method: str
    url: httpx.URL
    headers: Headers

    @property
    def path(self) -> str:
        return self.url.path

    def scope(self) -> dict[str, Any]:
        return http_scope(self.method, self.path, self.url.raw_path, self.headers, self.url.scheme)


class Exchange:
    """
    Args:
        asked: the request.
        wake: tells the reader that something is new; called on any thread.
        patience_s: seconds in which the reader must take some of what waits for it, or it is cut; ``None``: never.
    """

    def __init__(self, asked: Request, wake: Callable[[], None], patience_s: float | None) -> None:
        self._asked = asked
        self._wake = wake
        self._patience = patience_s
        # The app's.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stirred = asyncio.Event()
        self._unread: deque[bytes] = deque()
        self._sent = 0
        self._received = 0
        self._full = False
        self._all_received = False
        self._started: Head | None = None
        self._head: Head | None = None
        self._over = False
        self._failure: str | None = None
        self._hasty = False
        """The app is told to end: it waits for no reader any more."""
        # The reader's.
        self._body: deque[bytes] = deque()
        self._fed = 0
        self._taken = 0
        self._body_ended = False
        self._gone = False

    # -- the reader's side --------------------------------------------------------------------------------------------

    def feed(self, piece: bytes) -> None:
        self._body.append(piece)
        self._fed += len(piece)
        self._stir()

    def end_of_body(self) -> None:
        self._body_ended = True
        self._stir()

    def takes_more(self) -> bool | None:
        """Whether more of the body is of use, ``True`` or ``False``; ``None``: not now."""
        if self._over or self._head is not None:
            return False
        return True if self._fed - self._received <= HIGH_WATER else None

    def head(self) -> Head | None:
        """The status and the headers, once some of the body or its end is there; ``None``: not yet.

        Raises:
            httpx.RemoteProtocolError: there will be none.
        """
        over = self._over
        if self._head is None and over:
            raise httpx.RemoteProtocolError(self._failure or "the app ended without an answer")
        return self._head

    def piece(self) -> bytes | None:
        """All that came since the last call; empty at the end, ``None``: nothing yet.

        Raises:
            httpx.RemoteProtocolError: the answer was cut.
        """
        over = self._over  # looked at first: what is said before the end is there once the end is
        pieces = []
        while self._unread:
            pieces.append(self._unread.popleft())
        if pieces:
            joined = b"".join(pieces)
            self._taken += len(joined)
            if self._full:
                self._stir()
            return joined
        if not over:
            return None
        if self._failure is not None:
            raise httpx.RemoteProtocolError(self._failure)
        return b""

    @property
    def whole(self) -> bool:
        """All of the answer was said; what was not taken of it can still be."""
        return self._over and self._failure is None

    def hang_up(self) -> None:
        """Nobody reads any more; the app is told unless it has ended.  Idempotent, and safe at any moment."""
        if not self._gone and not self._over:
            self._gone = True
            self._stir()

    def _stir(self) -> None:
        loop = self._loop
        if loop is None:  # not begun: it looks before it waits
            return
        try:
            loop.call_soon_threadsafe(self._stirred.set)
        except RuntimeError:  # the loop was closed, and this ended with it
            logger.debug("an exchange was stirred after its end")

    # -- the app's side -----------------------------------------------------------------------------------------------

    async def run(self, app: ASGIApp) -> None:
        """Have the app answer; on the app's loop."""
        self._loop = asyncio.get_running_loop()
        try:
            await app(self._asked.scope(), self._receive, self._send)
        except Exception:
            logger.exception("%s %s failed", self._asked.method, self._asked.path)
        finally:
            self.end("the request was ended by the server")

    def end(self, why: str) -> None:
        """No more comes; unless the answer is whole, it was cut and ``why`` says so."""
        if not self._over:
            self._failure = why
            self._over = True
        self._wake()

    def hurry(self) -> None:
        """Wait for the reader no more, so that the app can end at once; what it still says is kept for the reader."""
        self._hasty = True
        self._stirred.set()

    async def _receive(self) -> Message:
        while True:
            self._stirred.clear()
            if self._gone or self._over:
                return {"type": "http.disconnect"}
            ended = self._body_ended  # looked at first, as ``_over`` is
            if self._body or (ended and not self._all_received):
                return self._part_of_body(ended)
            await self._stirred.wait()

    def _part_of_body(self, ended: bool) -> Message:
        pieces = []
        while self._body:
            pieces.append(self._body.popleft())
        body = b"".join(pieces)
        self._received += len(body)
        self._all_received = ended
        if not ended:
            self._wake()
        return {"type": "http.request", "body": body, "more_body": not ended}

    async def _send(self, message: Message) -> None:
        await self._room()
        if self._gone or self._over:
            return
        if message["type"] == "http.response.start":
            self._started = Head(message["status"], message.get("headers", ()))
            return  # told with what follows at once, so that the reader is woken once
        body = b"" if self._asked.method == "HEAD" else message.get("body", b"")
        if body:
            self._unread.append(body)
            self._sent += len(body)
        self._head = self._started
        if not message.get("more_body", False):
            self._over = True
            self._stirred.set()
        self._wake()

    async def _room(self) -> None:
        """Wait until the reader took what it has.

        A reader that takes nothing for too long is cut, as a connection is.
        """
        while self._crowded():
            taken = self._taken
            self._stirred.clear()
            self._full = True
            try:
                if self._crowded():
                    await asyncio.wait_for(self._stirred.wait(), self._patience)
            except asyncio.TimeoutError:
                if taken == self._taken:
                    self.end(f"nothing of the answer was read for {self._patience:g} seconds")
                    self._stirred.set()
            finally:
                self._full = False

    def _crowded(self) -> bool:
        return self._sent - self._taken > HIGH_WATER and not (self._gone or self._over or self._hasty)
