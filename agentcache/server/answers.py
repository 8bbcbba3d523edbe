"""What answers hold, for the OpenAPI description: the fields that are always there.  Others may be."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
ANY_OBJECT: Schema = {"type": "object"}


def _object(**fields: Schema) -> Schema:
    return {"type": "object", "required": [*fields], "properties": fields}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


USAGE = _object(
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    total_tokens=COUNT,
    prompt_tokens_details=_object(cached_tokens=COUNT),
)
CACHE_REPORT = _object(
    page_size=COUNT,
    prompt_tokens=COUNT,
    cached_tokens=COUNT,
    cached_pages=COUNT,
    partial_tokens=COUNT,
    computed_tokens=COUNT,
    preemptions=COUNT,
    tiers=_object(device=COUNT, host=COUNT, disk=COUNT, store=COUNT),
    miss=_null(ANY_OBJECT),
    alignment=ANY_OBJECT,
    findings=_list(ANY_OBJECT),
)


def _completion(choice: Schema, kind: str) -> Schema:
    return _object(
        id=TEXT,
        object={"const": kind},
        created=COUNT,
        model=TEXT,
        choices=_list(choice),
        usage=USAGE,
        agentcache=CACHE_REPORT,
    )


REASON = {"enum": ["stop", "length", "tool_calls"]}
CHAT = _completion(
    _object(index=COUNT, message=_object(role={"const": "assistant"}), finish_reason=REASON), "chat.completion"
)
COMPLETION = _completion(_object(index=COUNT, text=TEXT, finish_reason=REASON), "text_completion")
PAGES = _object(
    page_size=COUNT, total=COUNT, free=COUNT, live=COUNT, cached=COUNT, pinned=COUNT, running=COUNT, waiting=COUNT,
    tiers=_list(ANY_OBJECT),
)  # fmt: skip
SESSION = _object(
    id=TEXT, object={"const": "session"}, model=TEXT, tokens=COUNT, pages=COUNT, created_at=NUMBER, expires_at=NUMBER,
    pinned_until=_null(NUMBER), in_flight=FLAG, turns=_list(ANY_OBJECT),
)  # fmt: skip
LEASE = _object(id=TEXT, granted_pages=COUNT, expires_at=NUMBER)
FOUND = _object(
    object={"const": "list"}, requests=COUNT, with_findings=COUNT, sessions=COUNT,
    prompt_tokens=COUNT, cached_tokens=COUNT, misses=ANY_OBJECT,
    data=_list(_object(
        request_id=TEXT, session=_null(TEXT), started=NUMBER, route=TEXT, prompt_tokens=COUNT, cached_tokens=COUNT,
        miss=_null(ANY_OBJECT), findings=_list(ANY_OBJECT),
    )),
    continued=_list(ANY_OBJECT), cache=ANY_OBJECT, server=ANY_OBJECT,
)  # fmt: skip
MODEL = _object(id=TEXT, object={"const": "model"}, created=COUNT, owned_by=TEXT, max_model_len=COUNT, page_size=COUNT)
TREE = _object(page_size=COUNT, namespaces=_list(_object(id=COUNT)), nodes=_list(ANY_OBJECT), truncated=FLAG)
RENDERED = _object(
    object={"const": "chat.completion.prompt"},
    model=TEXT,
    source={"enum": ["template", "transcript"]},
    text=TEXT,
    token_ids=_list(COUNT),
    offsets=_list({"type": "array", "items": COUNT, "minItems": 2, "maxItems": 2}),
    count=COUNT,
)

ANSWERS: dict[tuple[str, str], Schema] = {
    ("post", "/v1/chat/completions"): CHAT,
    ("post", "/v1/completions"): COMPLETION,
    ("post", "/v1/chat/completions/render"): RENDERED,
    ("post", "/tokenize"): _object(tokens=_list(COUNT), count=COUNT, max_model_len=COUNT),
    ("post", "/detokenize"): _object(prompt=TEXT),
    ("get", "/v1/models"): _object(object={"const": "list"}, data=_list(MODEL)),
    ("get", "/v1/models/{model_id}"): MODEL,
    ("get", "/health"): _object(status={"enum": ["ok", "degraded"]}),
    ("get", "/version"): _object(version=TEXT),
    ("get", "/v1/cache"): PAGES,
    ("get", "/v1/findings"): FOUND,
    ("get", "/v1/cache/tree"): TREE,
    ("post", "/v1/cache/flush"): {"allOf": [PAGES, _object(flushed=COUNT)]},
    ("post", "/v1/sessions"): SESSION,
    ("get", "/v1/sessions"): _object(object={"const": "list"}, data=_list(SESSION)),
    ("get", "/v1/sessions/{session_id}"): SESSION,
    ("delete", "/v1/sessions/{session_id}"): _object(id=TEXT, deleted={"const": True}),
    ("get", "/v1/sessions/{session_id}/explain"): {
        "allOf": [SESSION, _object(cached=ANY_OBJECT, events=_list(ANY_OBJECT))]
    },
    ("post", "/v1/sessions/{session_id}/fork"): _object(sessions=_list(SESSION)),
    ("post", "/v1/sessions/{session_id}/rollback"): SESSION,
    ("post", "/v1/sessions/{session_id}/adopt"): SESSION,
    ("post", "/v1/sessions/{session_id}/wait"): LEASE,
    ("post", "/v1/sessions/{session_id}/pin"): LEASE,
    ("post", "/v1/sessions/{session_id}/unpin"): SESSION,
    ("post", "/v1/sessions/{session_id}/snapshot"): _object(name=TEXT, session=TEXT, tokens=COUNT, turns=COUNT),
}
STREAMED = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})
"""Routes that answer with server-sent events when ``stream`` is true."""
OPEN = frozenset({"/health", "/version", "/ui", "/ui/static/{name}"})
"""Routes that need no key."""
