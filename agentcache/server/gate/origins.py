"""Web pages: which of them may call the server, and which may not reach it by a trick with names.

A server without keys trusts whoever can reach it, and every page in a browser on this machine can.  Two headers that no page
can forge tell such requests apart:

* ``Origin`` comes with everything that a page sends but plain reads.  One that is neither the server's own nor given with
  ``--cors-origin`` is refused.  (Plain reads change nothing, and the browser does not show the page their answers.)
* ``Host`` is the name that the browser looked up.  A page can let a name of its own point to this machine (DNS rebinding),
  and would then be of the server's own origin, so only names that always mean this machine are answered.

A key protects by itself: pages do not know it, and browsers do not add it.
"""

from __future__ import annotations

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from agentcache.dialects.wording import shown
from agentcache.server.errors import ApiError
from agentcache.settings import Settings, is_loopback

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_EXPOSED = ("retry-after", "x-request-id", "request-id")
_PREFLIGHT_S = 600


def guard_origins(app: FastAPI, settings: Settings) -> None:
    """Install what ``settings`` ask for; call once, after every other middleware."""
    if not settings.keyed:
        app.add_middleware(OriginGuard, settings=settings)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("*",),
            allow_headers=("*",),
            allow_credentials=False,  # keys travel in headers that the page itself sets
            expose_headers=_EXPOSED,
            max_age=_PREFLIGHT_S,
        )


class OriginGuard:
    """ASGI middleware of servers without keys."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._origins = frozenset(settings.cors_origins)
        self._any_host = settings.allow_keyless
        self._host = settings.host.strip("[]").lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (error := self._refusal(scope)) is not None:
            await error.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._any_host and host and not self._own(host):
            why = (
                f"host: got {shown(host)}, expected a name of this machine such as localhost: a server without keys "
                "answers to no other one (--api-key, or --allow-keyless)"
            )
            return ApiError(403, why, param="host", code="foreign_host")
        origin = headers.get("origin")
        if origin is None or scope["method"] in _READS or {origin, "*"} & self._origins:
            return None
        if host and origin.partition("://")[2].lower() == host.lower():
            return None
        why = (
            f"origin: got {shown(origin)}, expected a page of this server or one allowed with --cors-origin: "
            "a server without keys takes nothing from other pages"
        )
        return ApiError(403, why, param="origin", code="foreign_origin")

    def _own(self, host: str) -> bool:
        name = _without_port(host)
        return name == self._host or is_loopback(name)


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    if colon and port.isdecimal() and not (":" in name and not name.endswith("]")):
        return name.strip("[]")
    return host.lower().strip("[]")
