"""What runs here: models, health, version, the cache, and hooks for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from agentcache import __version__
from agentcache.engine.neighbours import Neighbour
from agentcache.server.bodies import ClockBody, FaultBody, check
from agentcache.server.cache_tree import runs_of
from agentcache.server.context import Context
from agentcache.server.errors import ApiError
from agentcache.server.gate.auth import api_key
from agentcache.server.gate.json_body import parse_object, read_body
from agentcache.server.openapi import json_request


def health_body(healthy: bool, reason: str, neighbours: Sequence[Neighbour]) -> dict[str, Any]:
    """What ``/health`` says of an engine and of what it works with; of an engine alone, its status alone."""
    engine = _component(None if healthy else reason)
    others = {neighbour.name: _component(neighbour.trouble()) for neighbour in neighbours}
    if not others:
        return engine
    degraded = healthy and any(other["status"] != "ok" for other in others.values())
    status = "degraded" if degraded else engine["status"]
    return {**engine, "status": status, "components": {"engine": engine, **others}}


def _component(trouble: str | None) -> dict[str, Any]:
    return {"status": "ok"} if trouble is None else {"status": "unavailable", "reason": trouble}


def open_router(context: Context) -> APIRouter:
    """Routes that need no key: load balancers ask them."""
    router = APIRouter(tags=["server"])

    @router.get("/health", summary="Whether requests are served")
    async def health() -> JSONResponse:
        """200 once the model is loaded and the engine runs; 503 otherwise, and while the server shuts down.

        Where a store or an events endpoint is configured, `components` says how each of them is. While only one of those is in
        trouble, requests are served, and the status is `degraded`.
        """
        healthy, reason = context.engine.healthy()
        if context.lifecycle.closing:
            healthy, reason = False, "shutting down"
        return JSONResponse(health_body(healthy, reason, context.engine.neighbours), 200 if healthy else 503)

    @router.get("/version", summary="Version of the server")
    async def version() -> dict[str, str]:
        return {"version": __version__}

    return router


def models_router(context: Context) -> APIRouter:
    router = APIRouter(tags=["models"])
    info = context.engine.info

    def model_card() -> dict[str, Any]:
        """OpenAI's fields and Anthropic's: their clients ask the same route."""
        return {
            "id": info.model_name,
            "object": "model",
            "created": info.created,
            "owned_by": "agentcache",
            "type": "model",
            "display_name": info.model_name,
            "created_at": datetime.fromtimestamp(info.created, timezone.utc).isoformat().replace("+00:00", "Z"),
            "max_model_len": info.max_model_len,
            "page_size": info.page_size,
        }

    @router.get("/v1/models", summary="The served model")
    async def models() -> dict[str, Any]:
        name = info.model_name
        return {"object": "list", "data": [model_card()], "first_id": name, "last_id": name, "has_more": False}

    @router.get("/v1/models/{model_id:path}", summary="One model")
    async def model(model_id: str) -> dict[str, Any]:
        context.check_model(model_id)
        return model_card()

    return router


def cache_router(context: Context) -> APIRouter:
    router = APIRouter(tags=["cache"])
    engine = context.engine

    @router.get("/v1/cache", summary="Pages by state")
    async def cache() -> dict[str, Any]:
        """Each page is in one state: free, live (held by a request), cached, or pinned; they add up to the total."""
        return _pages(context)

    @router.get("/v1/cache/tree", summary="What is cached, as a tree")
    async def tree(request: Request) -> dict[str, Any]:
        """Of this key's own namespaces only; pages that follow each other are one node, its text cut to a preview."""
        salts = context.desk.namespaces.of(api_key(request))
        runs, truncated = await engine.inspect(lambda manager: runs_of(manager, salts.keys()))
        numbers = {root: number for number, root in enumerate(salts)}
        decode = engine.tokenizer.decode
        nodes = [
            {"namespace": numbers[run.root], **run.to_json(decode(run.beginning, skip_special_tokens=False))}
            for run in runs
        ]
        return {
            "page_size": engine.info.page_size,
            "namespaces": [{"id": numbers[root], "salt": salt} for root, salt in salts.items()],
            "nodes": nodes,
            "truncated": truncated,
        }

    return router


def flush_router(context: Context) -> APIRouter:
    """For operators: it is everybody's cache."""
    router = APIRouter(tags=["cache"])

    @router.post("/v1/cache/flush", summary="Drop every cached page that is not pinned")
    async def flush() -> dict[str, Any]:
        flushed = await context.engine.flush()
        return {"flushed": flushed, **_pages(context)}

    return router


def _pages(context: Context) -> dict[str, Any]:
    stats = context.engine.stats()
    return {
        "page_size": context.engine.info.page_size,
        "total": stats.total_pages,
        "free": stats.free_pages,
        "live": stats.live_pages,
        "cached": stats.cached_pages,
        "pinned": stats.pinned_pages,
        "running": stats.running,
        "waiting": stats.waiting,
        "tiers": [tier._asdict() for tier in stats.tiers],
    }


def debug_router(context: Context) -> APIRouter:
    """Hooks for tests, only with ``--enable-test-hooks``."""
    router = APIRouter(tags=["debug"], prefix="/debug")
    engine = context.engine

    @router.post("/clock", summary="Move the engine's clock", openapi_extra=json_request(ClockBody))
    async def clock(request: Request) -> dict[str, float]:
        body = check(ClockBody, parse_object(await read_body(request, context.settings.max_body)))
        await engine.advance_clock(body.advance_s)
        context.desk.store.sweep()
        await engine.settled()
        return {"advanced_s": body.advance_s}

    @router.post("/fault", summary="Make a call fail, once", openapi_extra=json_request(FaultBody))
    async def fault(request: Request) -> dict[str, Any]:
        body = check(FaultBody, parse_object(await read_body(request, context.settings.max_body)))
        try:
            await engine.inject_fault(body.site, body.at, body.delay_ms)
        except ValueError as error:
            raise ApiError(400, str(error), param="site", code="invalid_value") from error
        return {"site": body.site, "at": body.at, "delay_ms": body.delay_ms}

    @router.post("/check", summary="Run every invariant")
    async def check_invariants() -> JSONResponse:
        """200 when all hold; otherwise 500 and the list of what is broken."""
        broken = await engine.check()
        return JSONResponse({"ok": not broken, "broken": broken}, 500 if broken else 200)

    return router
