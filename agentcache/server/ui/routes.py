"""``/ui``: the explorer page, which holds no data, and the data that it asks for with the key of whoever looks."""

from __future__ import annotations

import json
import time
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from xxhash import xxh3_128_hexdigest

from agentcache import __version__
from agentcache.dialects.wording import shown
from agentcache.server.context import Context
from agentcache.server.errors import ApiError, bad_field
from agentcache.server.gate.auth import api_key
from agentcache.server.sessions.routes import session_json
from agentcache.server.ui.queues import queues
from agentcache.server.ui.records import history_json, latest_json
from agentcache.server.ui.tree import TreeViews, own_roots

_FILES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "icicle.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "panels.js": "text/javascript; charset=utf-8",
    "reasons.js": "text/javascript; charset=utf-8",
    "requests.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_NODES = 400
_MAX_NODES = 2_000
_SESSIONS = 100
_TURNS = 50
_NAME = 80


def ui_router(context: Context) -> APIRouter:
    """The page and its parts: no key, no data."""
    router = APIRouter(tags=["explorer"])
    folder = files("agentcache.server.ui") / "static"

    def part(name: str, kind: str) -> Response:
        body = (folder / name).read_bytes()
        return Response(body, media_type=kind, headers={**_HEADERS, "cache-control": "no-cache"})

    @router.get("/ui", summary="The explorer page", response_class=Response)
    async def page() -> Response:
        return part("page.html", "text/html; charset=utf-8")

    @router.get("/ui/", include_in_schema=False)
    async def without_slash() -> Response:
        """The page names its parts beside itself, so it has one address; relative, for proxies that put it elsewhere."""
        return Response(status_code=307, headers={"location": "../ui"})

    @router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def front() -> Response:
        """Who opens the address in a browser wants to see something; some clients only ask whether anybody is there."""
        return Response(status_code=307, headers={"location": "ui"})

    @router.get("/ui/static/{name}", summary="A part of the explorer page", response_class=Response)
    async def static(name: str) -> Response:
        if name not in _FILES:
            raise ApiError(
                404, f"name: got {shown(name)}, expected one of {', '.join(_FILES)}", param="name", code="not_found"
            )
        return part(name, _FILES[name])

    return router


def ui_data_router(context: Context) -> APIRouter:
    """What the page shows: of the key that asks, and of others only sums."""
    router = APIRouter(tags=["explorer"], prefix="/ui")
    engine, desk = context.engine, context.desk
    views = TreeViews(context)

    def owner(request: Request) -> bytes:
        return desk.home(api_key(request), None).owner

    @router.get("/state", summary="Pages, queues and hit rate, now", response_class=Response)
    async def state(request: Request) -> Response:
        """Pages by state, tiers, queues in the scheduler's order, and the hit rate of the last five minutes."""
        info, now = engine.info, time.time()
        healthy, reason = engine.healthy()
        queued = await queues(engine, own_roots(context, api_key(request)))
        stats = engine.stats()
        return _answer(
            request,
            {
                "now": round(now, 3),
                "version": __version__,
                "model": info.model_name,
                "device": info.device,
                "page_size": info.page_size,
                "keyed": context.settings.keyed,
                "healthy": healthy and not context.lifecycle.closing,
                "reason": reason,
                "pages": {
                    "total": stats.total_pages,
                    "free": stats.free_pages,
                    "live": stats.live_pages,
                    "cached": stats.cached_pages,
                    "pinned": stats.pinned_pages,
                },
                "tiers": [{**tier._asdict(), "counts": dict(tier.counts)} for tier in stats.tiers],
                "queues": queued,
                "history": history_json(context.journal.latest(owner(request)), now),
            },
        )

    @router.get("/tree", summary="The prefix tree, cut down to what can be drawn", response_class=Response)
    async def tree(request: Request) -> Response:
        """``?under=ID`` of a node draws that part alone; ``?nodes=N`` bounds the answer.  What is left out is summed up."""
        limit = _number(request, "nodes", _NODES, _MAX_NODES)
        view = await views.view(api_key(request))
        body = await run_in_threadpool(views.to_json, view, request.query_params.get("under"), limit)
        return _answer(request, body)

    @router.get("/sessions", summary="Sessions and what their turns cost", response_class=Response)
    async def sessions(request: Request) -> Response:
        """Those used last first, with their last turns; ``name`` is the first text in a session's metadata."""
        owned = list(desk.store.of(owner(request)))
        owned.sort(key=lambda session: session.expires_at - session.ttl_s, reverse=True)
        shown_ = [session_json(context, session) for session in owned[:_SESSIONS]]
        for session in shown_:
            names = (value for value in session.pop("metadata").values() if isinstance(value, str))
            session["name"] = next(names, "")[:_NAME]
            session["turn_count"] = len(session["turns"])
            session["turns"] = session["turns"][-_TURNS:]
        return _answer(request, {"count": len(owned), "sessions": shown_})

    @router.get("/requests", summary="The latest requests, and where each stopped hitting", response_class=Response)
    async def requests(request: Request) -> Response:
        return _answer(request, {"requests": latest_json(context.journal.latest(owner(request)))})

    return router


def _number(request: Request, name: str, default: int, most: int) -> int:
    """
    Raises:
        ApiError: 400 for anything but a number from 1 to ``most``.
    """
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isascii() or not given.isdigit() or not 1 <= int(given[:9]) <= most or len(given) > 9:
        raise bad_field(name, f"got {shown(given)}, expected a number from 1 to {most:,}")
    return int(given)


def _answer(request: Request, value: Any) -> Response:
    """JSON with a tag of its content: whoever has it already is told so, and nothing is sent again."""
    body = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    tag = f'"{xxh3_128_hexdigest(body)}"'
    headers = {
        "etag": tag,
        "cache-control": "private, no-cache",
        "vary": "authorization",
        "x-content-type-options": "nosniff",
    }
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)
