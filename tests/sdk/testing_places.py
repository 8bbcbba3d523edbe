"""Two places where one and the same calls are made: the fake engine, and a real server whose model says what it is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from saying import saying_server

from agentcache_sdk import Client, Session, Turn
from agentcache_sdk.testing import URL, FakeEngine, ScriptedCall

Said = str | list[ScriptedCall]


@dataclass(frozen=True)
class Place:
    """Where calls are made.

    Attributes:
        client: of the SDK.
        http: the same without the SDK.
        says: sets what every reply is from now on.
        advance: moves the server's clock, in seconds.
    """

    client: Client
    http: httpx.Client
    says: Callable[[Said], None]
    advance: Callable[[float], Any]
    model: str


@contextmanager
def fake_place() -> Iterator[Place]:
    said: list[Said] = ["Fine."]
    engine = FakeEngine(lambda _: said[-1], pages=1024, max_model_len=4096)
    with engine.client() as client, httpx.Client(base_url=URL, transport=engine.transport) as http:
        yield Place(client, http, said.append, engine.advance, "fake")


@contextmanager
def real_place(folder: Path) -> Iterator[Place]:
    (folder / "disk").mkdir()
    with saying_server(folder, disk_dir=folder / "disk") as saying, Client(saying.server.url) as client:
        http = saying.server.http

        def says(said: Said) -> None:
            saying.says(said if isinstance(said, str) else "\n".join(map(written, said)))

        def advance(seconds: float) -> None:
            http.post("/debug/clock", json={"advance_s": seconds}).raise_for_status()

        yield Place(client, http, says, advance, "saying")


def written(call: ScriptedCall) -> str:
    """A call as the model writes it."""
    return f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'


# What is compared


def seen(turn: Turn, before: Turn | None = None) -> dict[str, Any]:
    """All of a turn that does not depend on the tokenizer.

    Args:
        before: the turn that it goes on from; its prompt and its reply should be cached.
    """
    cache, usage = turn.cache, turn.usage
    known = 0 if before is None else before.usage.prompt_tokens + before.usage.completion_tokens
    return {
        "text": turn.text,
        "calls": [(call.name, call.args, bool(call.id)) for call in turn.tool_calls],
        "finish": turn.finish_reason,
        "message": shape(turn.message),
        "body": shape(turn.raw),
        "cached beyond what is known": usage.cached_tokens - known,
        "computed": (cache.computed_tokens or 0)
        - (usage.prompt_tokens - usage.cached_tokens + usage.completion_tokens),
        "total": usage.total_tokens - usage.prompt_tokens - usage.completion_tokens,
        "source": cache.source,
        "in session": cache.session is not None,
        **missed(turn),
    }


def missed(turn: Turn) -> dict[str, Any]:
    miss = turn.cache.miss
    if miss is None:
        return {"miss": None}
    # Where a prompt parts from another inside a token is the tokenizer's affair.
    return {
        "miss": miss.code,
        "message": miss.message_index,
        "path": miss.path,
        "was told": miss.was is not None,
        "now told": miss.now is not None,
        "at what is cached": miss.at_token - turn.usage.cached_tokens,
    }


def held(session: Session, place: Place) -> dict[str, Any]:
    """A session as its server tells it."""
    info = place.http.get(f"/v1/sessions/{session.id}?include=messages").json()
    return {
        "shape": shape(info),
        "messages": [without_ids(message) for message in info.get("messages") or ()],
        "turns": [(turn["messages"], turn["tools"], (turn["miss"] or {}).get("code")) for turn in info["turns"]],
        "tools": [tool["function"]["name"] for tool in info.get("tools") or ()],
        "pinned": info["pinned_until"] is not None,
        "text": info.get("text"),
    }


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """Ids of calls are each server's own, and so is white space in their arguments."""
    kept = {key: value for key, value in message.items() if key not in ("tool_calls", "tool_call_id")}
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return kept | {"calls": [(call["name"], json.loads(call["arguments"])) for call in calls]}


def shape(value: Any, at: str = "") -> set[str]:
    """Paths of an answer, with the types that stand there: what a client may rely on.

    What the server finds fault with is left out: the fake finds only what its script says.
    """
    if isinstance(value, dict):
        inside = {key: inner for key, inner in value.items() if key != "findings"}
        return {path for key, inner in inside.items() for path in shape(inner, f"{at}.{key}")} or {f"{at}: object"}
    if isinstance(value, list):
        return {path for inner in value for path in shape(inner, f"{at}[]")} or {f"{at}: list"}
    kind = "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
    return {f"{at}: {kind}"}


def answered(reply: httpx.Response) -> dict[str, Any]:
    """Status, and of an error all but its sentence."""
    body = reply.json()
    error = body.get("error")
    told = {key: error[key] for key in ("type", "param", "code")} if error else shape(body)
    return {"status": reply.status_code, "told": told, "retry-after": "retry-after" in reply.headers}


def failed(error: Any) -> tuple[str, int, str | None, str | None]:
    return type(error).__name__, error.status, error.code, error.param


def difference(ours: Any, theirs: Any, at: str = "") -> list[str]:
    """Where two outcomes differ, for people."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        pairs = [(key, ours.get(key), theirs.get(key)) for key in {**ours, **theirs}]
    elif isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)) and len(ours) == len(theirs):
        pairs = [(place, a, b) for place, (a, b) in enumerate(zip(ours, theirs))]
    elif isinstance(ours, set) and isinstance(theirs, set):
        return [f"{at}: the fake alone has {sorted(ours - theirs)}, the server alone {sorted(theirs - ours)}"]
    else:
        return [f"{at}: {ours!r} of the fake, {theirs!r} of the server"]
    return [line for key, a, b in pairs if a != b for line in difference(a, b, f"{at}[{key}]")]
