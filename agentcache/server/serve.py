"""Running the app: sockets, signals, the banner, and an end within ten seconds."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI

from agentcache.errors import SettingsError
from agentcache.server.gate.connections import HttpConfig, Limits
from agentcache.settings import Settings

if TYPE_CHECKING:
    pass

GRACE_S = 5
"""How long clients get to take the end of their streams; then they are cut."""
_CUT_S = 1
"""How long requests get to notice that they were cut."""
BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks a free one.

    Raises:
        SettingsError: the address is unknown, taken or not allowed.
    """
    return answering(bind(host, port))


def bind(host: str, port: int) -> socket.socket:
    """A socket that holds the address; who connects is refused until it is ``answering``.

    Raises:
        SettingsError: the address is unknown, taken or not allowed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SettingsError(f"--host {host}: {error.strerror or error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise SettingsError(f"--host {host} --port {port}: {error.strerror or error}") from error
    listener.setblocking(False)
    return listener


def answering(listener: socket.socket) -> socket.socket:
    """
    Raises:
        SettingsError: another process began to answer at the same address in the meantime.
    """
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        listener.close()
        raise SettingsError(f"--host {host} --port {port}: {error.strerror or error}") from error
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn that ends streams politely, and whose exit code is 0 after a signal."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        config = HttpConfig(
            app,
            Limits.of(settings),
            app.state.exchanges.end,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="on",
            backlog=BACKLOG,
            timeout_graceful_shutdown=GRACE_S + _CUT_S,
        )
        super().__init__(config)
        self._lifecycle = app.state.lifecycle
        self.on_listening = _nothing
        self._loop: asyncio.AbstractEventLoop | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second signal is no reason to leave the engine behind, only to wait for no client any more."""
        if self.should_exit and self._loop is not None:
            self._loop.call_soon_threadsafe(self._cut)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self.on_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._lifecycle.close()
        # One turn of the loop for the last events, before connections are told to close.
        await asyncio.sleep(0)
        cut = asyncio.get_running_loop().call_later(GRACE_S, self._cut)
        try:
            await super().shutdown(sockets)
        finally:
            cut.cancel()

    def _cut(self) -> None:
        """Hang up on clients that took nothing, so that their requests end by themselves and none is cancelled."""
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn, a signal that was obeyed is not raised again: it is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _nothing() -> None:
    return None
