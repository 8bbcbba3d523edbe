"""Connections to a Redis server on which a whole call has a deadline.

redis-py gives each read of a socket a timeout of its own, so a server that sends a byte now and then could hold a call for ever.
Here each socket asks, before anything that may block, how much is left of the call that its thread is in.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import HiredisRespSerializer
from redis.retry import Retry

from agentcache.store.calls import Deadline
from agentcache.store.redis_address import RedisAddress

_READ = 2**20
"""Bytes read from a socket at once; far more than redis-py's own measure, since values are large."""

_LARGE = 2**14
"""Bytes from which on a value is not worth copying."""

_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")
"""What OpenSSL makes of a server that speaks in clear."""


class Call(threading.local):
    """The call that the current thread is in."""

    deadline: Deadline | None = None

    @contextlib.contextmanager
    def within(self, deadline: Deadline) -> Iterator[None]:
        self.deadline = deadline
        try:
            yield
        finally:
            self.deadline = None

    def left(self) -> float:
        """Seconds.

        Raises:
            TimeoutError: there are none.
        """
        left = self.deadline.left if self.deadline is not None else 0.0
        if left <= 0:
            raise TimeoutError("the call took too long")
        return left


class _Packer:
    """Commands as redis-py packs them, except that a large value is sent from where it lies instead of being copied."""

    def __init__(self) -> None:
        self._small = HiredisRespSerializer()

    def pack(self, *args: Any) -> list[bytes]:
        if not any(isinstance(arg, bytes) and len(arg) >= _LARGE for arg in args):
            packed: list[bytes] = self._small.pack(*args)
            return packed
        pieces: list[bytes] = []
        head = b"*%d\r\n" % len(args)
        for arg in args:
            value = arg if isinstance(arg, bytes) else str(arg).encode()
            head += b"$%d\r\n" % len(value)
            if len(value) >= _LARGE:
                pieces += (head, value)
                head = b"\r\n"
            else:
                head += value + b"\r\n"
        return [*pieces, head]


class _Socket:
    """A connected socket whose reads and writes end with the call."""

    def __init__(self, inner: socket.socket, call: Call) -> None:
        self._inner = inner
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def settimeout(self, seconds: float | None) -> None:
        """Set anew before each read and write."""

    def recv(self, size: int, *flags: int) -> bytes:
        if not flags:  # with flags it only looks, at what is there already
            self._inner.settimeout(self._call.left())
        return self._inner.recv(size, *flags)

    def recv_into(self, buffer: bytearray) -> int:
        self._inner.settimeout(self._call.left())
        return self._inner.recv_into(buffer)

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._inner.settimeout(self._call.left())
            view = view[self._inner.send(view) :]


class NoTlsError(redis.ConnectionError):
    """A server took the connection, and no TLS came of it."""


def _within(call: Call, kind: Any) -> Any:
    """``kind``, one of redis-py's classes of connections, such that connecting ends with the call, as do all reads and writes."""

    class Connection(kind):  # type: ignore[misc]
        def _connect(self) -> Any:
            self.socket_timeout = self.socket_connect_timeout = call.left()
            return _Socket(super()._connect(), call)

        def _wrap_socket_with_ssl(self, sock: socket.socket) -> Any:
            """Is called by ``redis.SSLConnection`` alone."""
            sock.settimeout(call.left())
            try:
                return super()._wrap_socket_with_ssl(sock)
            except TimeoutError:
                raise NoTlsError("no answer") from None
            except ssl.SSLError as error:
                if error.reason not in _NOT_TLS:
                    raise
                raise NoTlsError("an answer that is no TLS") from None

    return Connection


def connected(address: RedisAddress, call: Call) -> Any:
    """A ``redis.Redis`` for the server at ``address``, which connects when it is used and never tries anything twice.

    Its types differ between versions of redis-py, so they are not told.

    Args:
        call: whoever uses the client is ``within`` it.
    """
    options: dict[str, Any] = {
        "db": address.db,
        "username": address.username,
        "password": address.password,
        "protocol": 2,  # every server has it, and none of the replies that are needed differs in 3
        "socket_read_size": _READ,
        "command_packer": _Packer(),
        "retry": Retry(NoBackoff(), 0),
    }
    kind: type[redis.Connection] | type[redis.UnixDomainSocketConnection]
    if address.path:
        kind = redis.UnixDomainSocketConnection
        options["path"] = address.path
    else:
        kind = redis.Connection if address.tls is None else redis.SSLConnection
        options |= {"host": address.host, "port": address.port, **(address.tls or {})}
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=_within(call, kind), **options))
