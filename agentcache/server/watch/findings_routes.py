"""``GET /v1/findings``: what kept the latest requests of a key from being reused, together."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from typing import Any

from fastapi import APIRouter, Request

from agentcache import __version__
from agentcache.dialects.wording import shown
from agentcache.server.context import Context
from agentcache.server.errors import bad_field
from agentcache.server.gate.auth import api_key
from agentcache.server.watch.journal import RequestRecord

_LIMIT = 100
_MOST = 512
_PARAMETERS = {
    "parameters": [
        {
            "name": "limit",
            "in": "query",
            "schema": {"type": "integer", "minimum": 1, "maximum": _MOST, "default": _LIMIT},
        },
        {
            "name": "code",
            "in": "query",
            "schema": {"type": "string"},
            "description": "codes or their beginnings: AC1,AC801",
        },
        {"name": "session", "in": "query", "schema": {"type": "string"}},
    ]
}
_CODE = re.compile(r"AC\d{0,3}")


def findings_router(context: Context) -> APIRouter:
    router = APIRouter(tags=["cache"])

    @router.get("/v1/findings", summary="What kept the latest requests from being reused", openapi_extra=_PARAMETERS)
    async def findings(request: Request) -> dict[str, Any]:
        """Of this key's latest requests, the newest first: ``?limit=N`` of those with findings, ``?code=AC1,AC801`` of these
        codes or beginnings of codes, ``?session=ID`` of one session.  Sums are over all that are remembered."""
        owner = context.desk.home(api_key(request), None).owner
        limit, codes = _limit(request), _codes(request)
        session = request.query_params.get("session")
        records = [record for record in context.journal.latest(owner) if session is None or record.session == session]
        told = [(record, _chosen(record, codes)) for record in records]
        rows = [(record, found) for record, found in told if found]
        measured = [record for record in records if record.measured]
        misses = Counter(str(record.miss["code"]) for record in records if record.miss)
        return {
            "object": "list",
            "requests": len(records),
            "with_findings": len(rows),
            "sessions": len({record.session for record in records} - {None}),
            "prompt_tokens": sum(record.prompt_tokens for record in measured),
            "cached_tokens": sum(record.cached_tokens for record in measured),
            "misses": dict(misses),
            "data": [_row(record, found) for record, found in islice(rows, limit)],
            "continued": [_continued(record) for record in records if record.foreign_replies],
            "cache": _cache(context),
            "server": _server(context),
        }

    return router


def _limit(request: Request) -> int:
    """
    Raises:
        ApiError: 400 for anything but a number from 1 to 512.
    """
    given = request.query_params.get("limit", str(_LIMIT))
    if not re.fullmatch("[0-9]{1,4}", given) or not 1 <= int(given) <= _MOST:
        raise bad_field("limit", f"got {shown(given)}, expected a number from 1 to {_MOST}")
    return int(given)


def _codes(request: Request) -> tuple[str, ...]:
    """
    Raises:
        ApiError: 400 for what is no code and no beginning of one.
    """
    given = request.query_params.get("code")
    if given is None:
        return ("AC",)
    codes = tuple(code.strip().upper() for code in given.split(","))
    for code in codes:
        if not _CODE.fullmatch(code):
            raise bad_field("code", f"got {shown(code)}, expected a code such as AC101, or the beginning of one")
    return codes


def _chosen(record: RequestRecord, codes: tuple[str, ...]) -> list[dict[str, Any]]:
    return [finding for finding in record.findings if finding["code"].startswith(codes)]


def _row(record: RequestRecord, found: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "request_id": record.request_id,
        "session": record.session,
        "started": round(record.started, 3),
        "route": record.route,
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "miss": record.miss,
        "findings": found,
    }


def _continued(record: RequestRecord) -> dict[str, Any]:
    """A request that goes on with replies which were not generated here."""
    return {
        "request_id": record.request_id,
        "session": record.session,
        "started": round(record.started, 3),
        "replies": record.foreign_replies,
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
    }


def _cache(context: Context) -> dict[str, Any]:
    """Pages by state, of everybody together; why pages left; what else could hold them."""
    stats, settings = context.engine.stats(), context.settings
    return {
        "page_size": context.engine.info.page_size,
        "total": stats.total_pages,
        "free": stats.free_pages,
        "live": stats.live_pages,
        "cached": stats.cached_pages,
        "pinned": stats.pinned_pages,
        "evictions": dict(stats.evictions),
        "namespace_pages": settings.namespace_pages,
        "host_pages": settings.host_pages,
        "enabled": settings.prefix_cache,
    }


def _server(context: Context) -> dict[str, Any]:
    info = context.engine.info
    return {"version": __version__, "model": info.model_name, "started": info.created}
