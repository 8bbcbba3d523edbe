"""The requests about sessions, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from agentcache_sdk._calls import Call, field_of
from agentcache_sdk._replies import Reply
from agentcache_sdk._retry import Repeat
from agentcache_sdk.errors import APIError
from agentcache_sdk.types import Explanation, Pin, SessionInfo, Snapshot, Wire

SESSIONS = "/v1/sessions"
_WHOLE = "?include=messages"
W = TypeVar("W", bound=Wire)


def create(fields: Mapping[str, Any]) -> Call[SessionInfo]:
    """``fields`` that are ``None`` are left out.  Of a snapshot, with the conversation that is in it."""
    body = {key: value for key, value in fields.items() if value is not None}
    path = SESSIONS + (_WHOLE if "from_snapshot" in body else "")
    return Call("POST", path, _as(SessionInfo), body, Repeat.APPENDING)


def sessions() -> Call[list[SessionInfo]]:
    def parse(reply: Reply) -> list[SessionInfo]:
        return [reply.parse(SessionInfo, info) for info in field_of(reply, "data")]

    return Call("GET", SESSIONS, parse)


def info(session_id: str) -> Call[SessionInfo]:
    """With its conversation."""
    return Call("GET", _path(session_id) + _WHOLE, _as(SessionInfo))


def explain(session_id: str) -> Call[Explanation]:
    return Call("GET", _path(session_id, "explain"), _as(Explanation))


def fork(session_id: str, n: int, at_turn: int) -> Call[list[SessionInfo]]:
    def parse(reply: Reply) -> list[SessionInfo]:
        forks = [reply.parse(SessionInfo, info) for info in field_of(reply, "sessions")]
        if len(forks) != n:
            reply.unreadable(f"expected {n} sessions, got {len(forks)}")
        return forks

    body = {"n": n, "at_turn": at_turn}
    return Call("POST", _path(session_id, "fork"), parse, body, Repeat.APPENDING)


def rollback(session_id: str, to_turn: int, if_turns: int) -> Call[None]:
    """Of a session that must have ``if_turns`` turns; what this client has not seen is not dropped."""
    body = {"to_turn": to_turn, "if_turns": if_turns}
    return Call("POST", _path(session_id, "rollback"), _nothing, body)


def adopt(session_id: str, fork_id: str, if_turns: int) -> Call[SessionInfo]:
    """Go on with a fork's turns; the fork is ended.  Not repeated where it may have happened: the fork is gone then."""
    body = {"session": fork_id, "if_turns": if_turns}
    return Call("POST", _path(session_id, "adopt"), _as(SessionInfo), body, Repeat.APPENDING)


def drop_turn(session_id: str, to_turn: int, turn_id: str) -> Call[None]:
    """Have the server drop one turn of this client's, should it be there."""
    body = {"to_turn": to_turn, "only_turn_id": turn_id}
    return Call("POST", _path(session_id, "rollback"), _nothing, body, Repeat.SETTLING)


def wait(session_id: str, tool: str, expect_s: float | None) -> Call[None]:
    body = {"tool": tool} | ({} if expect_s is None else {"expect_s": expect_s})
    return Call("POST", _path(session_id, "wait"), _nothing, body)


def pin(session_id: str, ttl_s: float | None) -> Call[Pin]:
    return Call("POST", _path(session_id, "pin"), _as(Pin), {} if ttl_s is None else {"ttl_s": ttl_s})


def unpin(session_id: str) -> Call[None]:
    return Call("POST", _path(session_id, "unpin"), _nothing, {})


def snapshot(session_id: str, name: str) -> Call[Snapshot]:
    return Call("POST", _path(session_id, "snapshot"), _as(Snapshot), {"name": name})


def delete(session_id: str, if_turns: int | None = None) -> Call[None]:
    """Never repeated: a server that cannot be reached forgets an idle session by itself.

    Args:
        if_turns: how many turns it must have to be ended.
    """
    query = "" if if_turns is None else f"?if_turns={if_turns}"
    return Call("DELETE", _path(session_id) + query, _nothing, repeat=Repeat.NEVER)


def state(session_id: str) -> Call[SessionInfo]:
    """Without its conversation."""
    return Call("GET", _path(session_id), _as(SessionInfo))


def is_missing_route(error: APIError) -> bool:
    """Whether ``error`` is the answer of a server that knows no sessions, rather than about one session or model."""
    return error.status in (404, 405) and error.code in (None, "404", "not_found", "method_not_allowed")


def _path(session_id: str, verb: str = "") -> str:
    return f"{SESSIONS}/{quote(session_id, safe='')}{'/' if verb else ''}{verb}"


def _as(model: type[W]) -> Callable[[Reply], W]:
    return lambda reply: reply.parse(model, reply.body())


def _nothing(_: Reply) -> None:
    return None
