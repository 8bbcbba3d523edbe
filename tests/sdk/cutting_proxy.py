"""A proxy between a client and its server that loses connections where a test wants it to.

::

    client ---- up ----> proxy ---- up ----> server
           <--- down ---       <--- down ---
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Way = Literal["up", "down"]
_ABRUPT = struct.pack("ii", 1, 0)
"""A linger time of 0: closing resets the connection."""


@dataclass
class Cut:
    """Lose the connection on which the next bytes of one way go.

    Attributes:
        after: so many bytes still go through.
        reset: abruptly, rather than as one who hangs up.
    """

    way: Way
    after: int = 0
    reset: bool = False


class CuttingProxy:
    """Passes bytes on until the next of ``cuts`` says otherwise; ``target`` may change (a server that came back elsewhere)."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.seen = {"up": 0, "down": 0}
        self._cut: Cut | None = None
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self, cut: Cut | None) -> None:
        """The next cut, or none; each happens once."""
        with self._lock:
            self._cut = cut

    @property
    def is_armed(self) -> bool:
        """Whether the cut has not happened yet."""
        with self._lock:
            return self._cut is not None

    def close(self) -> None:
        self._listener.close()
        with self._lock:
            left = list(self._open)
        for one in left:
            _shut(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            for way, source, sink in (("up", client, server), ("down", server, client)):
                threading.Thread(target=self._pump, args=(way, source, sink), daemon=True).start()

    def _pump(self, way: Way, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                passed, cut = self._passed(way, piece)
                if passed:
                    sink.sendall(passed)
                if cut is not None:
                    if cut.reset:
                        for end in (source, sink):
                            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABRUPT)
                    break
        for end in (source, sink):
            _shut(end)
        with self._lock:
            self._open -= {source, sink}

    def _passed(self, way: Way, piece: bytes) -> tuple[bytes, Cut | None]:
        with self._lock:
            self.seen[way] += len(piece)
            cut = self._cut
            if cut is None or cut.way != way:
                return piece, None
            if cut.after >= len(piece):
                cut.after -= len(piece)
                return piece, None
            self._cut = None
            return piece[: cut.after], cut


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        end.close()


@contextmanager
def cutting_proxy(target: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
