"""Bodies of the routes below ``/v1/sessions``."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agentcache.server.bodies import Body, Int
from agentcache.sessions.store import MAX_TTL_S

_TTL = f"a number of seconds from 1 to {MAX_TTL_S}"
MAX_FORKS = 256
HEADERS = ("x-session-id", "x-claude-code-session-id")
"""May name a session, for clients that cannot add to the body; agents send ids of their own in them."""


class CreateBody(Body):
    """``POST /v1/sessions``"""

    model: str | None = Field(None, description="the name of the served model, as text")
    system: str | None = Field(None, description="text: the system message")
    tools: list[dict[str, Any]] | None = Field(None, description="a list of tool objects")
    messages: list[dict[str, Any]] | None = Field(None, description="a list of message objects to begin with")
    prompt: str | list[Any] | None = Field(None, description="text or a list of token ids: a raw session")
    from_snapshot: str | None = Field(None, description="text: the name of a snapshot")
    ttl_s: float | None = Field(None, ge=1, le=MAX_TTL_S, description=f"{_TTL}; default 3600")
    cache_salt: str | None = Field(None, description="text: only requests with the same salt share pages")
    metadata: dict[str, Any] | None = Field(None, description="an object of the client's own")


class ForkBody(Body):
    """``POST /v1/sessions/{id}/fork``"""

    n: Int | None = Field(None, ge=1, le=MAX_FORKS, description=f"an integer from 1 to {MAX_FORKS}; default 1")
    at_turn: Int | None = Field(None, ge=0, description="an integer from 0: how many turns the fork keeps")


class RollbackBody(Body):
    """``POST /v1/sessions/{id}/rollback``"""

    to_turn: Int = Field(ge=0, description="an integer from 0: how many turns are kept")
    if_turns: Int | None = Field(
        None, ge=0, description="an integer from 0: how many turns the session must have, or nothing is dropped"
    )
    only_turn_id: str | None = Field(
        None, min_length=1, max_length=64, description="1 to 64 characters: the turn_id of the one turn to be dropped"
    )


class AdoptBody(Body):
    """``POST /v1/sessions/{id}/adopt``"""

    session: str = Field(description="text: the id of a fork, which the session goes on as")
    if_turns: Int | None = Field(
        None, ge=0, description="an integer from 0: how many turns the session must have, or nothing is adopted"
    )


class WaitBody(Body):
    """``POST /v1/sessions/{id}/wait``"""

    tool: str | None = Field(None, description="text: the name of the tool that runs")
    expect_s: float | None = Field(
        None, ge=0, le=MAX_TTL_S, description="a number of seconds from 0: how long it takes"
    )
    ttl_s: float | None = Field(None, ge=1, le=MAX_TTL_S, description=_TTL)


class PinBody(Body):
    """``POST /v1/sessions/{id}/pin``"""

    ttl_s: float | None = Field(None, ge=1, le=MAX_TTL_S, description=f"{_TTL}; default 300")


class SnapshotBody(Body):
    """``POST /v1/sessions/{id}/snapshot``"""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="1 to 64 of the characters A-Z a-z 0-9 . _ -")
