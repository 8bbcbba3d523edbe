"""Where events go out: addresses of ZeroMQ, and who listens at them.

::

    tcp://*:5557   tcp://[::]:5557   ipc:///run/events   inproc://events       listened at, as vLLM does
    tcp://router:5557                                                          connected to, as vLLM does
    @tcp://10.0.0.5:5557                                                       listened at, on that address alone
    >ipc:///run/router                                                         connected to
"""

from __future__ import annotations

import re
import socket
from typing import NamedTuple

from agentcache.errors import SettingsError

_TRANSPORTS = ("tcp", "ipc", "inproc")
_TCP = re.compile(r"(?P<host>\*|\[[0-9A-Fa-f:.%\w]*\]|[^\s:/\[\]]+):(?P<port>\*|\d{1,5})")
_PROBE_S = 1.0


class Endpoint(NamedTuple):
    """One address and what is done at it.

    Attributes:
        flag: the setting that gave it, such as ``--kv-events``.
        given: as it was given.
        address: as ZeroMQ takes it.
        bind: whether others connect to it, rather than it to others.
    """

    flag: str
    given: str
    address: str
    bind: bool

    @property
    def transport(self) -> str:
        return self.address.partition("://")[0]

    @property
    def ipv6(self) -> bool:
        return self.transport == "tcp" and "[" in self.address

    def error(self, why: str) -> SettingsError:
        return SettingsError(f"{self.flag} {self.given}: {why}")

    def check_free_or_answering(self) -> None:
        """What ZeroMQ itself would pass over in silence.

        Raises:
            SettingsError: nobody answers at an address that is connected to, or somebody does at a file that would be replaced.
        """
        if self.transport == "tcp" and not self.bind:
            self._must_answer()
        elif self.transport == "ipc" and self.bind and self._file_answers():
            raise self.error("another process listens there")

    def _must_answer(self) -> None:
        host, _, port = self.address.removeprefix("tcp://").rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_S).close()
        except OSError as error:
            listen = f"tcp://*:{port} listens on every address of this machine, @{self.address} on that one"
            raise self.error(f"it is connected to, and nobody answers ({_reason(error)}); {listen}") from None

    def _file_answers(self) -> bool:
        path = self.address.removeprefix("ipc://")
        if path.startswith("@"):
            path = "\0" + path[1:]
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_PROBE_S)
            try:
                probe.connect(path)
            except OSError:
                return False
        return True


def parse_endpoint(flag: str, given: str, *, bind: bool | None = None) -> Endpoint:
    """
    Args:
        bind: what is done where the text does not say, in place of vLLM's rule.

    Raises:
        SettingsError: it is not an address that can be listened at or connected to.
    """
    mark, address = (given[:1], given[1:]) if given[:1] in {"@", ">"} else ("", given)
    transport, separator, rest = address.partition("://")
    if not separator or not rest or transport not in _TRANSPORTS:
        expected = ", ".join(f"{known}://" for known in _TRANSPORTS)
        raise SettingsError(f"{flag}: got {given!r}, expected an address that begins with one of {expected}")
    binds = transport != "tcp" or "*" in rest or "::" in rest
    if bind is not None:
        binds = bind
    binds = {"@": True, ">": False}.get(mark, binds)
    if transport == "tcp":
        _check_tcp(flag, given, rest, binds=binds)
    return Endpoint(flag, given, address, binds)


def _check_tcp(flag: str, given: str, rest: str, *, binds: bool) -> None:
    parts = _TCP.fullmatch(rest)
    if parts is None or (parts["port"] != "*" and not 1 <= int(parts["port"]) <= 65535):
        raise SettingsError(
            f"{flag}: got {given!r}, expected tcp://HOST:PORT with a port from 1 to 65535 (* picks a free one), such as "
            "tcp://*:5557 to listen on every address of this machine"
        )
    if not binds and "*" in rest:
        raise SettingsError(f"{flag}: got {given!r}, but * is no address that can be connected to")


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
