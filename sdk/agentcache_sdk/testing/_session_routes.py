"""The routes below ``/v1/sessions``."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs

from agentcache_sdk.testing._http import Answer, Asked, Refusal, bad_field, check_messages, check_number
from agentcache_sdk.testing._rendering import Prompt, render
from agentcache_sdk.testing._sessions import DEFAULT_TTL_S, HeldSession, check_rollback, check_turns, turns_kept
from agentcache_sdk.testing._state import State
from agentcache_sdk.testing._tokens import decode, encode

_MAX_TTL_S = 604_800
_PIN_S = _WAIT_S = 300.0
_PATIENCE, _LEAST_WAIT_S = 3, 30.0
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def session_route(state: State, asked: Asked) -> Answer:
    """
    Raises:
        Refusal: there is no such session or route, or the body is wrong.
    """
    parts = asked.path.split("/")[3:]
    if not parts and asked.method == "GET":
        owned = state.store.of(asked.owner)
        return Answer({"object": "list", "data": [_info(state, session) for session in owned]})
    whole = _wants_messages(asked.query)
    if not parts:
        return Answer(_told(state, _create(state, asked), whole))
    if len(parts) == 1:
        session = state.store.get(parts[0], asked.owner, use=asked.method == "DELETE")
        if asked.method == "DELETE":
            (wanted,) = parse_qs(asked.query).get("if_turns", [None])
            check_turns(session, None if wanted is None else int(wanted))
            state.store.end(session)
            return Answer({"id": session.id, "object": "session.deleted", "deleted": True})
        return Answer(_told(state, session, whole))
    verb = _VERBS.get((asked.method, "/".join(parts[1:])))
    if verb is None:
        raise Refusal(404, f"no route {asked.method} {asked.path}", code="not_found")
    return Answer(verb(state, state.store.get(parts[0], asked.owner, use=asked.method == "POST"), asked.body))


def _create(state: State, asked: Asked) -> HeldSession:
    body = asked.body
    state.check_model(body.get("model"))
    _check_ttl(body)
    given = [name for name in ("system", "tools", "messages", "prompt") if name in body]
    if "from_snapshot" in body:
        if given:
            raise bad_field("from_snapshot", f"got it together with {', '.join(given)}, expected it alone")
        name = _name(body["from_snapshot"], "from_snapshot")
        return state.store.restore(name, asked.owner, body.get("ttl_s"), body.get("metadata"))
    if "prompt" in body and len(given) > 1:
        raise bad_field("prompt", f"got it together with {given[0]}, expected a raw session or one of messages")
    system = [{"role": "system", "content": body["system"]}] if "system" in body else []
    prompt = body.get("prompt", ())
    session = HeldSession(
        id=state.store.new_id(),
        owner=asked.owner,
        root=state.root(asked.owner, body.get("cache_salt")),
        ttl_s=body.get("ttl_s") or DEFAULT_TTL_S,
        created=state.now(),
        raw="prompt" in body,
        head=(*system, *check_messages(body.get("messages"), least=0)),
        head_ids=tuple(encode(prompt) if isinstance(prompt, str) else prompt),
        tools=tuple(body.get("tools") or ()),
        metadata=body.get("metadata") or {},
    )
    state.check_size(_tokens(state, session), "prompt" if session.raw else "messages")
    session.note("created", state.now())
    return state.store.add(session)


def _info(state: State, session: HeldSession) -> dict[str, Any]:
    tokens = len(_tokens(state, session))
    return {
        "id": session.id,
        "object": "session",
        "model": state.setup.model,
        "kind": "raw" if session.raw else "chat",
        "parent": session.parent,
        "tokens": tokens,
        "pages": -(-tokens // state.setup.page_size),
        "created_at": session.created,
        "expires_at": session.expires_at,
        "ttl_s": session.ttl_s,
        "pinned_until": state.pinned_until(session),
        "in_flight": session.in_flight,
        "metadata": session.metadata,
        "turns": [
            {"messages": len(turn.messages), "tools": turn.tool_names, **turn.figures} for turn in session.turns
        ],
    }  # fmt: skip


def _told(state: State, session: HeldSession, whole: bool) -> dict[str, Any]:
    info = _info(state, session)
    if not whole:
        return info
    if session.raw:
        return info | {"text": decode(session.ids)}
    return info | {"messages": session.messages, "tools": session.all_tools or None}


def _tokens(state: State, session: HeldSession) -> list[int]:
    """The transcript, without what would end its last reply or begin the next one."""
    if session.raw:
        return session.ids
    prompt: Prompt = render(session.entries, session.tools, state.memory)
    end = prompt.spans[-1].end if prompt.spans else 0
    return prompt.tokens[: end - 1 if session.turns else end]


def _explain(state: State, session: HeldSession, _: dict[str, Any]) -> dict[str, Any]:
    tokens = _tokens(state, session)
    match = state.cache.match(session.root, tokens)
    why = state.cache.why(session.root, tokens)
    held = len(match.pages) * state.setup.page_size + match.extra
    miss = None if why is None else {"code": why.code, "at_token": why.at_token, "detail": why.detail}
    cached = {
        "tokens": held,
        "pages": len(match.pages),
        "tiers": {"device": held, "host": 0, "disk": 0, "store": 0},
        "miss": miss,
    }
    return _info(state, session) | {"cached": cached, "events": session.events[-256:]}


def _fork(state: State, session: HeldSession, body: dict[str, Any]) -> dict[str, Any]:
    check_number(body, "n", 1, 256, "an integer from 1 to 256; default 1")
    turns_kept(session, body.get("at_turn"), "at_turn")
    forks = [state.store.fork(session, body.get("at_turn")) for _ in range(body.get("n", 1))]
    return {"sessions": [_info(state, fork) for fork in forks]}


def _rollback(state: State, session: HeldSession, body: dict[str, Any]) -> dict[str, Any]:
    if "to_turn" not in body:
        raise bad_field("to_turn", "missing, expected an integer from 0: how many turns are kept", "missing_field")
    check_rollback(session, body)
    state.store.rollback(session, body["to_turn"])
    state.follow(session, _tokens(state, session))
    return _info(state, session)


def _adopt(state: State, session: HeldSession, body: dict[str, Any]) -> dict[str, Any]:
    if "session" not in body:
        raise bad_field("session", "missing, expected text: the id of a fork", "missing_field")
    state.store.adopt(session, str(body["session"]), body.get("if_turns"))
    state.follow(session, _tokens(state, session))
    return _info(state, session)


def _wait(state: State, session: HeldSession, body: dict[str, Any]) -> dict[str, Any]:
    _check_ttl(body)
    check_number(body, "expect_s", 0, _MAX_TTL_S, "a number of seconds from 0: how long it takes")
    expect = body.get("expect_s")
    expected = _WAIT_S if expect is None else max(_LEAST_WAIT_S, _PATIENCE * expect)
    left = (state.pinned_until(session) or state.now()) - state.now()
    return _lease(state, session, max(body.get("ttl_s") or expected, left), "wait", tool=body.get("tool"))


def _pin(state: State, session: HeldSession, body: dict[str, Any]) -> dict[str, Any]:
    _check_ttl(body)
    return _lease(state, session, body.get("ttl_s") or _PIN_S, "pin")


def _lease(state: State, session: HeldSession, ttl_s: float, name: str, **facts: Any) -> dict[str, Any]:
    until = state.now() + ttl_s
    granted = state.hold(session, until, _tokens(state, session))
    session.note(name, state.now(), ttl_s=ttl_s, granted_pages=granted, **facts)
    return {"id": session.id, "granted_pages": granted, "expires_at": until, **facts}


def _unpin(state: State, session: HeldSession, _: dict[str, Any]) -> dict[str, Any]:
    state.end_lease(session)
    session.note("unpin", state.now())
    return _info(state, session)


def _snapshot(state: State, session: HeldSession, body: dict[str, Any]) -> dict[str, Any]:
    if "name" not in body:
        raise bad_field("name", "missing, expected 1 to 64 of the characters A-Z a-z 0-9 . _ -", "missing_field")
    name = _name(body["name"], "name")
    state.store.snapshot(session, name)
    tokens = len(_tokens(state, session))
    return {"name": name, "session": session.id, "tokens": tokens, "turns": len(session.turns)}


def _name(name: Any, field: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise bad_field(field, f"got {name!r}, expected 1 to 64 of the characters A-Z a-z 0-9 . _ -")
    return name


def _check_ttl(body: dict[str, Any]) -> None:
    check_number(body, "ttl_s", 1, _MAX_TTL_S, f"a number of seconds from 1 to {_MAX_TTL_S}")


def _wants_messages(query: str) -> bool:
    names = [name for value in parse_qs(query).get("include", []) for name in value.split(",")]
    for name in names:
        if name != "messages":
            raise bad_field("include", f"got {name!r}, expected messages")
    return bool(names)


_VERBS = {
    ("GET", "explain"): _explain,
    ("POST", "fork"): _fork,
    ("POST", "rollback"): _rollback,
    ("POST", "adopt"): _adopt,
    ("POST", "wait"): _wait,
    ("POST", "pin"): _pin,
    ("POST", "unpin"): _unpin,
    ("POST", "snapshot"): _snapshot,
}
