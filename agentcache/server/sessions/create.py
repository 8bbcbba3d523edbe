"""Making sessions: of messages, of raw text, or from a snapshot."""

from __future__ import annotations

import json
from array import array
from typing import Any

from starlette.concurrency import run_in_threadpool

from agentcache.chat.messages import Message, normalize_messages, normalize_tools
from agentcache.chat.renderer import ChatRenderer
from agentcache.dialects.wording import shown
from agentcache.errors import ChatTemplateError
from agentcache.server.context import Context
from agentcache.server.errors import ApiError, bad_field
from agentcache.server.sessions.bodies import CreateBody
from agentcache.server.sessions.turns import new_ids
from agentcache.sessions.session import Head, Session
from agentcache.sessions.snapshots import NAME
from agentcache.sessions.store import DEFAULT_TTL_S
from agentcache.sessions.transcript import Transcript, fresh_prompt

_MAX_METADATA = 16_384
_OF_MESSAGES = ("system", "tools", "messages")


async def create_session(context: Context, body: CreateBody, key: str | None) -> Session:
    """
    Raises:
        ApiError, AgentCacheError: a body that is no session.
    """
    context.check_model(body.model)
    _check_kind(body)
    if body.metadata is not None and len(json.dumps(body.metadata)) > _MAX_METADATA:
        raise bad_field("metadata", f"got more than {_MAX_METADATA:,} characters of JSON, expected a few words")
    if body.from_snapshot is not None:
        return await _restore(context, body, body.from_snapshot, key)
    head = await run_in_threadpool(_head, context, body)
    _check_size(context, head)
    now = context.engine.now()
    session = Session(
        id=context.desk.store.new_id(),
        home=context.desk.home(key, body.cache_salt),
        head=head,
        ttl_s=body.ttl_s or DEFAULT_TTL_S,
        created=now,
        transcript=head.transcript,
        metadata=body.metadata or {},
    )
    session.note("created", now)
    await context.desk.keeper.add(session)
    return session


def _check_kind(body: CreateBody) -> None:
    given = [name for name in _OF_MESSAGES if getattr(body, name) is not None]
    if body.prompt is not None:
        given.append("prompt")
    if body.from_snapshot is not None:
        if given or body.cache_salt is not None:
            message = (
                f"got it together with {', '.join(given) or 'cache_salt'}, expected it alone: it holds all of that"
            )
            raise bad_field("from_snapshot", message)
        if not NAME.fullmatch(body.from_snapshot):
            expected = "expected 1 to 64 of the characters A-Z a-z 0-9 . _ -"
            raise bad_field("from_snapshot", f"got {shown(body.from_snapshot)}, {expected}")
    elif body.prompt is not None and len(given) > 1:
        raise bad_field("prompt", f"got it together with {given[0]}, expected a raw session or one of messages")


def _check_size(context: Context, head: Head) -> None:
    """A beginning that no turn could ever be made of is not kept."""
    tokens, capacity = len(head.transcript), context.engine.info.capacity
    if tokens >= capacity:
        message = (
            f"the session begins with {tokens} tokens, and {capacity} are all that prompt and reply together may have"
        )
        raise ApiError(
            400, message, param="prompt" if head.raw else "messages", code="context_length_exceeded"
        )  # fmt: skip


def _head(context: Context, body: CreateBody) -> Head:
    if body.prompt is not None:
        ids = new_ids(context, body.prompt, first=True)
        return Head(raw=True, transcript=Transcript(array("I", ids)))
    messages: list[Message] = [] if body.system is None else [{"role": "system", "content": body.system}]
    if body.messages:
        normalize_messages(body.messages)
        messages += body.messages
    context.text_bounds.check_messages(messages)
    tools = normalize_tools(body.tools)
    return Head(False, tuple(messages), tools, _beginning(context.engine.renderer, messages, tools))


def _beginning(
    renderer: ChatRenderer, messages: list[Message], tools: list[dict[str, Any]] | None
) -> Transcript:  # fmt: skip
    """What the head renders to, where the template takes a conversation that ends there."""
    if not messages:
        return Transcript()
    try:
        return fresh_prompt(renderer.render_text(messages, tools=tools, add_generation_prompt=False)).transcript
    except ChatTemplateError:
        return Transcript()


async def _restore(context: Context, body: CreateBody, name: str, key: str | None) -> Session:
    desk = context.desk
    snapshot = await desk.snapshots.load(name, desk.home(key, None).owner)
    now = context.engine.now()
    session = Session(
        id=desk.store.new_id(),
        home=desk.home(key, snapshot.salt),
        head=snapshot.head,
        ttl_s=body.ttl_s or snapshot.ttl_s,
        created=now,
        transcript=snapshot.transcript,
        metadata=snapshot.metadata if body.metadata is None else body.metadata,
        turns=snapshot.turns,
    )
    session.note("restored", now, snapshot=name)
    await desk.keeper.add(session)
    return session
