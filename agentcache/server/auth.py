"""API keys: ``Authorization: Bearer KEY``."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from starlette.requests import Request

from agentcache.server.errors import ApiError


def require_key(keys: tuple[str, ...]) -> Callable[[Request], Awaitable[None]]:
    """A dependency that refuses requests without one of ``keys``; without keys the server is open.

    Every key is compared in constant time and all of them always, so that timing tells nothing.
    """
    known = [key.encode() for key in keys]

    async def check_key(request: Request) -> None:
        if not known:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        secret = given.strip().encode("latin-1")  # the bytes as they were sent
        matches = [hmac.compare_digest(secret, key) for key in known]
        if scheme.lower() != "bearer" or not any(matches):
            raise ApiError(
                401,
                "authorization: expected 'Bearer' and a key that this server knows",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        request.state.api_key = keys[matches.index(True)]

    return check_key


def api_key(request: Request) -> str | None:
    """The key the request was admitted with; none on an open server."""
    return getattr(request.state, "api_key", None)
