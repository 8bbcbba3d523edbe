"""``/v1/sessions``: making, forking, keeping and ending sessions.  Their turns are ordinary completions (``turns``)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from agentcache.cache.explain import Miss, explain
from agentcache.cache.manager import CacheManager
from agentcache.cache.tiers import TIERS
from agentcache.cache.tokens import PagedTokens
from agentcache.dialects.wording import shown
from agentcache.server.bodies import check
from agentcache.server.context import Context
from agentcache.server.errors import bad_field
from agentcache.server.gate.auth import api_key
from agentcache.server.gate.json_body import parse_object, read_body
from agentcache.server.openapi import json_request
from agentcache.server.sessions.bodies import (
    AdoptBody,
    CreateBody,
    ForkBody,
    PinBody,
    RollbackBody,
    SnapshotBody,
    WaitBody,
)
from agentcache.server.sessions.create import create_session
from agentcache.server.sessions.keeping import Client
from agentcache.server.sessions.preconditions import check_adopt, check_rollback, check_turns, turns_wanted
from agentcache.sessions.session import Session
from agentcache.sessions.store import SessionNotFoundError

_PIN_S = 300.0
_WAIT_S = 300.0
_PATIENCE = 3
"""A tool may take so many times as long as it was expected to before its session's pages become ordinary cache."""
_LEAST_WAIT_S = 30.0
AnyBody = TypeVar("AnyBody", bound=BaseModel)


def session_json(context: Context, session: Session) -> dict[str, Any]:
    """A session as its owner sees it, without what was said; times in Unix seconds."""
    desk = context.desk
    tokens = len(session.transcript)
    pinned_until = desk.leases.until(session)
    return {
        "id": session.id,
        "object": "session",
        "model": context.engine.info.model_name,
        "kind": "raw" if session.head.raw else "chat",
        "parent": session.parent,
        "tokens": tokens,
        "pages": -(-tokens // context.engine.info.page_size),
        "created_at": desk.unix(session.created),
        "expires_at": desk.unix(session.expires_at),
        "ttl_s": session.ttl_s,
        "pinned_until": None if pinned_until is None else desk.unix(pinned_until),
        "in_flight": session.in_flight is not None,
        "metadata": session.metadata,
        "turns": [turn.to_json() for turn in session.turns],
    }


def wants_messages(request: Request) -> bool:
    """Whether ``?include=messages`` was asked for.

    Raises:
        ApiError: 400, something else was.
    """
    included = [name for value in request.query_params.getlist("include") for name in value.split(",") if name]
    for name in included:
        if name != "messages":
            raise bad_field("include", f"got {shown(name)}, expected messages")
    return bool(included)


def sessions_router(context: Context) -> APIRouter:
    router = APIRouter(tags=["sessions"], prefix="/v1/sessions")
    desk, engine = context.desk, context.engine

    async def body_of(request: Request, model: type[AnyBody]) -> AnyBody:
        raw = await read_body(request, context.settings.max_body)
        # Nothing at all is an empty object: most of these calls need no word more than their address.
        return check(model, parse_object(raw) if raw.strip() else {})

    def client(request: Request) -> Client:
        return desk.client(api_key(request))

    async def mine(request: Request, session_id: str, *, use: bool = True) -> Session:
        return await desk.keeper.get(client(request), session_id, use=use)

    async def told(session: Session, whole: bool) -> dict[str, Any]:
        """With what was said in its committed turns; of a raw session, the text that its ids stand for."""
        state = session_json(context, session)
        if not whole:
            return state
        if not session.head.raw:
            return state | {"messages": session.messages, "tools": session.tools}
        decode, ids = engine.tokenizer.decode, session.transcript.ids.tolist()
        return state | {"text": await run_in_threadpool(decode, ids, skip_special_tokens=False)}

    async def lease(session: Session, ttl_s: float, event: str, **facts: Any) -> dict[str, Any]:
        granted = await desk.leases.hold(session, ttl_s)
        now = engine.now()
        session.note(event, now, ttl_s=ttl_s, granted_pages=granted, **facts)
        until = now + ttl_s if session.lease_until is None else session.lease_until
        return {"id": session.id, "granted_pages": granted, "expires_at": desk.unix(until), **facts}

    @router.post("", summary="Begin a session, or restore one", openapi_extra=json_request(CreateBody))
    async def create(request: Request) -> dict[str, Any]:
        """Of messages (``system``, ``tools``, ``messages``), of raw text (``prompt``), or ``from_snapshot``."""
        context.check_open()
        whole = wants_messages(request)
        body = await body_of(request, CreateBody)
        return await told(await create_session(context, body, api_key(request)), whole)

    @router.get("", summary="The sessions of this key")
    async def sessions(request: Request) -> dict[str, Any]:
        owned = await desk.keeper.owned(client(request))
        return {"object": "list", "data": [session_json(context, session) for session in owned]}

    @router.get("/{session_id}", summary="One session")
    async def session(request: Request, session_id: str) -> dict[str, Any]:
        """With ``?include=messages`` also what was said.  Looking at a session does not keep it alive."""
        return await told(await mine(request, session_id, use=False), wants_messages(request))

    @router.get("/{session_id}/explain", summary="What happened to a session, and what of it is cached now")
    async def explained(request: Request, session_id: str) -> dict[str, Any]:
        session = await mine(request, session_id, use=False)
        events = [{**event, "at": desk.unix(event["at"])} for event in session.events]
        tokens = engine.paged(session.transcript.ids, session.home.root, session.bookmark)
        cached = await engine.inspect(lambda manager: _cached(manager, tokens))
        return {**session_json(context, session), "cached": cached, "events": events}

    @router.delete("/{session_id}", summary="End a session")
    async def delete(request: Request, session_id: str) -> dict[str, Any]:
        """Its pages stay as ordinary cache; a turn in flight is aborted.  With ``?if_turns=N`` only if it has N turns."""
        wanted = turns_wanted(request)
        async with desk.keeper.alone(client(request), session_id) as find:
            check = None if wanted is None else partial(check_turns, expected=wanted)
            await desk.keeper.end(await find(session_id), check)
        await engine.settled()
        return {"id": session_id, "object": "session.deleted", "deleted": True}

    @router.post("/{session_id}/fork", summary="Sessions that go on from here", openapi_extra=json_request(ForkBody))
    async def fork(request: Request, session_id: str) -> dict[str, Any]:
        """They share every page up to where they part; works while a turn runs, which is then not part of them."""
        body = await body_of(request, ForkBody)
        async with desk.keeper.alone(client(request), session_id) as find:
            parent, now = await find(session_id), engine.now()
            twins = [parent.fork(desk.store.new_id(), now, body.at_turn) for _ in range(body.n or 1)]
        await asyncio.gather(*(desk.keeper.add(twin) for twin in twins))
        return {"sessions": [session_json(context, twin) for twin in twins]}

    @router.post("/{session_id}/adopt", summary="Go on as a fork did", openapi_extra=json_request(AdoptBody))
    async def adopt(request: Request, session_id: str) -> dict[str, Any]:
        """The session's turns become those of ``session``, which ends; done again it does nothing more."""
        body = await body_of(request, AdoptBody)
        async with desk.keeper.alone(client(request), session_id, body.session) as find:
            session = await find(session_id)
            if body.session == session.id:
                raise bad_field("session", f"got {shown(body.session)} itself, expected a fork of it")
            try:
                fork = await find(body.session)
            except SessionNotFoundError:
                if session.has_just_adopted(body.session):
                    return session_json(context, session)
                raise
            check_adopt(session, fork, body)
            await desk.keeper.change(session, partial(Session.adopt, fork=fork, now=engine.now()))
            await desk.leases.inherit(session, fork, lambda: desk.store.end(fork))
            await desk.keeper.end(fork)
        await engine.settled()
        return session_json(context, session)

    @router.post("/{session_id}/rollback", summary="Drop the last turns", openapi_extra=json_request(RollbackBody))
    async def rollback(request: Request, session_id: str) -> dict[str, Any]:
        body = await body_of(request, RollbackBody)
        async with desk.keeper.alone(client(request), session_id) as find:
            session = await find(session_id)
            check_rollback(session, body)
            await desk.keeper.change(session, partial(Session.rollback, to_turn=body.to_turn, now=engine.now()))
        await desk.leases.follow(session)
        return session_json(context, session)

    @router.post("/{session_id}/wait", summary="A tool runs: keep the pages", openapi_extra=json_request(WaitBody))
    async def wait(request: Request, session_id: str) -> dict[str, Any]:
        """A lease of ``ttl_s``, or of a few times ``expect_s``; it never shortens one that the session has."""
        body = await body_of(request, WaitBody)
        session = await mine(request, session_id)
        expected = _WAIT_S if body.expect_s is None else max(_LEAST_WAIT_S, _PATIENCE * body.expect_s)
        running = desk.leases.until(session)
        left = 0.0 if running is None else running - engine.now()
        return await lease(session, max(body.ttl_s or expected, left), "wait", tool=body.tool)

    @router.post("/{session_id}/pin", summary="Keep the pages for a time", openapi_extra=json_request(PinBody))
    async def pin(request: Request, session_id: str) -> dict[str, Any]:
        """In place of the lease that the session has; inside the server's budget, so fewer pages may be granted."""
        body = await body_of(request, PinBody)
        return await lease(await mine(request, session_id), body.ttl_s or _PIN_S, "pin")

    @router.post("/{session_id}/unpin", summary="Give a pin or a wait back")
    async def unpin(request: Request, session_id: str) -> dict[str, Any]:
        session = await mine(request, session_id)
        desk.leases.end(session)
        session.note("unpin", engine.now())
        await engine.settled()
        return session_json(context, session)

    @router.post("/{session_id}/snapshot", summary="Keep a session on disk", openapi_extra=json_request(SnapshotBody))
    async def snapshot(request: Request, session_id: str) -> dict[str, Any]:
        """The committed turns, under a name of this key; an older snapshot of that name is replaced."""
        body = await body_of(request, SnapshotBody)
        session = await mine(request, session_id)
        frozen = session.frozen()
        await desk.snapshots.save(body.name, frozen)
        session.note("snapshot", engine.now(), name=body.name)
        return {"name": body.name, "session": session.id, "tokens": len(frozen.transcript), "turns": len(frozen.turns)}

    return router


def _cached(manager: CacheManager, tokens: PagedTokens) -> Mapping[str, Any]:
    """What a turn would find of a transcript, by the tier where it lies, and why not more.  Nothing is moved or read.

    ::

        transcript:  | device | device | host | host | disk | neither ...
    """
    size = manager.page_size
    match = manager.tree.match(tokens, len(tokens))
    below = _below(manager, tokens, len(match.pages))
    why: Miss | None = None
    if not manager.enabled:
        why = Miss("disabled", 0, "the prefix cache is off")
    elif len(tokens):
        why = explain(manager.tree, tokens, match, below=len(below), tails=manager.tails)
    held = len(match.pages) * size if below else match.tokens(size)
    pages = Counter(below)
    return {
        "tokens": held + len(below) * size,
        "pages": len(match.pages) + len(below),
        "tiers": {"device": held, **{name: pages[name] * size for name in TIERS}},
        "miss": None if why is None else why.to_json(),
    }


def _below(manager: CacheManager, tokens: PagedTokens, start: int) -> list[str]:
    """For each page from ``start`` on, the nearest tier that has one of its name, as far as there is no gap."""
    names: list[str] = []
    lower = manager.lower
    if lower is None:
        return names
    for index in range(start, tokens.num_full_pages):
        name = lower.where(tokens.key(index))
        if name is None:
            break
        names.append(name)
    return names
