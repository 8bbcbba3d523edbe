"""Who answers which request of HTTP."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from agentcache_sdk.testing._generation import generate
from agentcache_sdk.testing._http import Answer, AnyAnswer, Asked, Refusal, bad_field, check_messages
from agentcache_sdk.testing._rendering import Prompt, render
from agentcache_sdk.testing._session_routes import session_route
from agentcache_sdk.testing._state import EPOCH, State
from agentcache_sdk.testing._tokens import decode, encode


def answer(state: State, asked: Asked) -> AnyAnswer:
    """
    Raises:
        Refusal: a request that is wrong, or that there is no route for.
        ScriptExhausted: the script has no reply for it.
        httpx.RequestError: the script says that the connection fails.
    """
    if (asked.method, asked.path) == ("POST", "/v1/chat/completions"):
        return generate(state, asked, chat=True)
    if (asked.method, asked.path) == ("POST", "/v1/completions"):
        return generate(state, asked, chat=False)
    if state.setup.sessions and asked.path.split("/")[:3] == ["", "v1", "sessions"]:
        return session_route(state, asked)
    route = _ROUTES.get((asked.method, asked.path))
    if route is None:
        raise Refusal(404, f"no route {asked.method} {asked.path}", code="not_found")
    return Answer(route(state, asked))


def _models(state: State, _: Asked) -> dict[str, Any]:
    setup = state.setup
    card = {
        "id": setup.model,
        "object": "model",
        "created": int(EPOCH),
        "owned_by": "agentcache",
        "max_model_len": setup.max_model_len,
        "page_size": setup.page_size,
    }
    return {"object": "list", "data": [card]}


def _health(_: State, __: Asked) -> dict[str, Any]:
    return {"status": "ok"}


def _version(_: State, __: Asked) -> dict[str, Any]:
    return {"version": "0.0.0+fake"}


def _cache(state: State, _: Asked) -> dict[str, Any]:
    pages = list(state.cache.pages())
    pinned = sum(page.pins > 0 for page in pages)
    total = state.setup.pages
    return {
        "page_size": state.setup.page_size,
        "total": total,
        "free": total - len(pages),
        "live": 0,
        "cached": len(pages) - pinned,
        "pinned": pinned,
        "running": 0,
        "waiting": 0,
        "tiers": [],
    }


def _flush(state: State, asked: Asked) -> dict[str, Any]:
    return {"flushed": state.cache.evict_all(), **_cache(state, asked)}


def _tokenize(state: State, asked: Asked) -> dict[str, Any]:
    body = asked.body
    state.check_model(body.get("model"))
    if ("prompt" in body) == ("messages" in body):
        raise bad_field("prompt", "expected either prompt or messages")
    ids = encode(body["prompt"]) if "prompt" in body else _rendered(state, body).tokens
    return {"tokens": ids, "count": len(ids), "max_model_len": state.setup.max_model_len}


def _detokenize(state: State, asked: Asked) -> dict[str, Any]:
    state.check_model(asked.body.get("model"))
    if not isinstance(asked.body.get("tokens"), list):
        raise bad_field("tokens", "missing, expected a list of token ids", "missing_field")
    return {"prompt": decode(asked.body["tokens"])}


def _render(state: State, asked: Asked) -> dict[str, Any]:
    state.check_model(asked.body.get("model"))
    prompt = _rendered(state, asked.body)
    pieces = [decode([token]) for token in prompt.tokens]
    ends = [0]
    for piece in pieces:
        ends.append(ends[-1] + len(piece))
    return {
        "object": "chat.completion.prompt",
        "model": state.setup.model,
        "source": "transcript" if prompt.known else "template",
        "text": "".join(pieces),
        "token_ids": prompt.tokens,
        "offsets": [list(span) for span in pairwise(ends)],
        "count": len(prompt.tokens),
        "page_size": state.setup.page_size,
        "max_model_len": state.setup.max_model_len,
    }


def _rendered(state: State, body: dict[str, Any]) -> Prompt:
    """With what a reply would follow, unless ``add_generation_prompt`` is false."""
    prompt = render(check_messages(body.get("messages")), body.get("tools"), state.memory)
    if body.get("add_generation_prompt") is False:
        prompt.tokens = prompt.tokens[: prompt.spans[-1].end]
    return prompt


_ROUTES = {
    ("GET", "/v1/models"): _models,
    ("GET", "/health"): _health,
    ("GET", "/version"): _version,
    ("GET", "/v1/cache"): _cache,
    ("POST", "/v1/cache/flush"): _flush,
    ("POST", "/tokenize"): _tokenize,
    ("POST", "/detokenize"): _detokenize,
    ("POST", "/v1/chat/completions/render"): _render,
}
