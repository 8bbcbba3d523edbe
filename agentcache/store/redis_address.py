"""Where a Redis or Valkey server is, who this is to it, and how to talk to it, from its URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote

PARAMETERS = ("db", "prefix", "ttl", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
_TLS = PARAMETERS[3:]
_TIME = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class RedisAddress:
    """
    Attributes:
        name: the address as people may see it, without the password.
        path: of the socket of a server on this machine, instead of ``host`` and ``port``.
        tls: files and rules for TLS, as redis-py calls them; ``None``: in clear.
        prefix: what all keys begin with.
        ttl_s: seconds after which the server forgets a page in any case; ``None``: when it has no room for it.
    """

    name: str
    host: str = ""
    port: int = 6379
    path: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Mapping[str, str] | None = None
    prefix: bytes = b""
    ttl_s: int | None = None

    @classmethod
    def of(cls, parts: SplitResult, parameters: Mapping[str, str]) -> RedisAddress:
        """
        Raises:
            ValueError: what was got and what was expected.
        """
        on_socket = parts.scheme == "unix"
        path = unquote(parts.path)
        if on_socket and (parts.hostname or len(path) < 2):
            raise ValueError("expected an absolute path of a socket, such as unix:///run/valkey.sock?db=0")
        if not on_socket and not parts.hostname:
            raise ValueError("expected the name of a server, such as redis://127.0.0.1:6379/0")
        db = _db("" if on_socket else path.strip("/"), parameters)
        username, password = (None if each is None else unquote(each) for each in (parts.username, parts.password))
        user = f"{username}@" if username else ""
        at = parts.hostname or ""
        place = path if on_socket else f"{f'[{at}]' if ':' in at else at}:{parts.port or 6379}"
        ttl = parameters.get("ttl")
        return cls(
            name=f"{parts.scheme}://{user}{place}" + (f"?db={db}" if on_socket else f"/{db}"),
            host=at,
            port=parts.port or 6379,
            path=path if on_socket else "",
            db=db,
            username=username or None,
            password=password or None,
            tls=_tls(parts.scheme, parameters),
            prefix=parameters.get("prefix", "").encode(),
            ttl_s=None if ttl is None else _seconds(ttl),
        )


def _db(path: str, parameters: Mapping[str, str]) -> int:
    if path and "db" in parameters:
        raise ValueError(f"got the database twice, /{path} and db={parameters['db']}")
    given = path or parameters.get("db", "0")
    if not re.fullmatch(r"[0-9]{1,6}", given):
        raise ValueError(f"got the database {given!r}, expected a number such as 0")
    return int(given)


def _tls(scheme: str, parameters: Mapping[str, str]) -> Mapping[str, str] | None:
    tls = {name: value for name, value in parameters.items() if name in _TLS}
    if scheme in {"rediss", "valkeys"}:
        reqs = tls.get("ssl_cert_reqs", "required")
        if reqs not in {"none", "optional", "required"}:
            raise ValueError(f"ssl_cert_reqs: got {reqs!r}, expected none, optional or required")
        return tls
    if tls:
        raise ValueError(f"got {', '.join(tls)} without TLS: expected rediss:// or valkeys://")
    return None


def _seconds(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if not match or int(match[1]) == 0:
        raise ValueError(f"ttl: got {text!r}, expected a time such as 7d, 12h, 30m or 90s")
    return int(match[1]) * _TIME[match[2]]
