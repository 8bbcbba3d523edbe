"""Requests that are refused, or nearly, by one server; a cluster must say the same of them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import httpx
from chats import CHAT

MAX_BODY = 4096


class Asked(NamedTuple):
    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, Any] = {}  # noqa: RUF012  never changed


def said(**fields: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **fields}).encode()


BODIES = [
    Asked("POST", CHAT),
    Asked("POST", CHAT, b"{not json"),
    Asked("POST", CHAT, b"[1]"),
    Asked("POST", CHAT, b"\xff\xfe"),
    Asked("POST", CHAT, b"[" * 2000),
    Asked("POST", CHAT, b'{"max_tokens": 1, "messages": [], "messages": [{"role": "user", "content": "x"}]}'),
    Asked("POST", CHAT, b'{"messages": []}'),
    Asked("POST", CHAT, said(temperature=-1)),
    Asked("POST", CHAT, said(temperature="hot")),
    Asked("POST", CHAT, said(max_tokens=0)),
    Asked("POST", CHAT, said(max_tokens="1")),
    Asked("POST", CHAT, said(n=10**6)),
    Asked("POST", CHAT, said(nonsense=1)),
    Asked("POST", CHAT, said(stream="yes")),
    Asked("POST", CHAT, said(model="other")),
    Asked("POST", CHAT, said(session="sess_gone-r9")),
    Asked("POST", CHAT, said(session=7)),
    Asked("POST", CHAT, said(tools=[{"type": "function"}])),
    Asked("POST", CHAT, said(), {"content-type": "text/plain"}),
    Asked("POST", CHAT, said(), {"content-type": "application/json; charset=utf-16"}),
    Asked("POST", CHAT, said(), {"content-encoding": "gzip"}),
    Asked("POST", CHAT, b" " * (MAX_BODY + 1)),
    Asked("POST", "/v1/messages", b" " * (MAX_BODY + 1)),
    Asked("POST", "/v1/messages", b'{"model": "tiny", "messages": []}'),
    Asked("POST", "/v1/messages", said()),
    Asked("POST", "/v1/messages/count_tokens", b"{}"),
    Asked("POST", "/v1/responses", b'{"model": "tiny", "input": "x", "previous_response_id": "resp_x-r9"}'),
    Asked("POST", "/v1/completions", b'{"prompt": [-1], "max_tokens": 1}'),
    Asked("POST", "/v1/completions", b'{"prompt": "x", "model": 3}'),
    Asked("POST", "/v1/sessions", b'{"system": 1}'),
    Asked("POST", "/tokenize", b"{}"),
    Asked("POST", "/v1/cache/flush?x=1", b"{}"),
]
ROUTES = [
    Asked("GET", "/v1/sessions/sess_none"),
    Asked("DELETE", "/v1/sessions/sess_none"),
    Asked("GET", "/v1/sessions/%00"),
    Asked("GET", "/v1/sessions/a%2Fb"),
    Asked("GET", "/v1/responses/resp_none"),
    Asked("GET", "/v1/findings?limit=0"),
    Asked("GET", "/v1/models/other"),
    Asked("PUT", "/v1/models"),
    Asked("POST", "/v1/models"),
    Asked("GET", CHAT),
    Asked("HEAD", CHAT),
    Asked("DELETE", CHAT),
    Asked("OPTIONS", CHAT),
    Asked("OPTIONS", "/nowhere"),
    Asked("TRACE", CHAT),
    Asked("PATCH", "/health"),
    Asked("HEAD", "/v1/models"),
    Asked("HEAD", "/nowhere"),
    Asked("GET", "/nowhere"),
    Asked("GET", "//v1/models"),
    Asked("GET", "/v1/models/"),
    Asked("GET", "/v1/%6dodels/other"),
    Asked("GET", "/v1/../metrics"),
    Asked("GET", "/-/routes"),
    Asked("GET", "/-/healthz"),
    Asked("GET", "/docs"),
    Asked("GET", "/openapi.json"),
    Asked("POST", "/debug/fault", b"{}"),
    Asked("GET", "/v1/cache/nowhere", None, {"x-request-id": "a b\tc"}),
    Asked("GET", "/v1/sessions/sess_none", None, {"x-request-id": "x" * 4000}),
    Asked("GET", "/nowhere", None, {"x-request-id": b"\xe4%0d%0aset-cookie: a=b"}),
    Asked("GET", "/nowhere", None, {"x-request-id": "mine", "request-id": "other"}),
]
KEYS: list[dict[str, str]] = [
    {},
    {"authorization": "Bearer a"},
    {"authorization": "Basic a"},
    {"authorization": "Bearer"},
    {"x-api-key": "wrong"},
    {"x-api-key": "a", "authorization": "Bearer b"},
    {"x-api-key": "boss"},
]
ORIGINS = [
    Asked("POST", CHAT, said(max_tokens=1), {"origin": "https://evil.example"}),
    Asked("POST", CHAT, b"{", {"origin": "https://app.example"}),
    Asked("POST", CHAT, b"{", {"origin": "null"}),
    Asked("GET", "/v1/models", None, {"origin": "https://app.example"}),
    Asked("GET", "/v1/cache/x", None, {"origin": "https://app.example"}),
    Asked("GET", "/v1/models", None, {"host": "rebound.example"}),
    Asked("GET", "/health", None, {"host": "rebound.example"}),
    Asked("GET", "/metrics", None, {"host": "rebound.example:80"}),
    Asked("POST", "/v1/cache/flush", None, {"origin": "https://evil.example"}),
    Asked("OPTIONS", CHAT, None, {"origin": "https://app.example", "access-control-request-method": "POST"}),
    Asked("OPTIONS", CHAT, None, {"origin": "https://evil.example", "access-control-request-method": "POST"}),
    Asked("OPTIONS", "/health", None, {"origin": "https://app.example", "access-control-request-method": "GET"}),
    Asked("OPTIONS", "/v1/cache", None, {"origin": "https://app.example", "access-control-request-method": "GET"}),
]
_COMPARED = (
    "www-authenticate", "retry-after", "content-type", "allow", "vary", "cache-control", "set-cookie", "location",
    "access-control-allow-origin", "access-control-allow-methods", "access-control-allow-headers",
    "access-control-max-age", "access-control-expose-headers",
)  # fmt: skip


def answer(http: httpx.Client, asked: Asked, **more: Any) -> Any:
    """Everything that clients go by, without what is of one request only; whole where it is no error."""
    reply = http.request(asked.method, asked.path, content=asked.body, headers={**asked.headers, **more})
    ids = [reply.headers.get_list(name) for name in ("x-request-id", "request-id")]
    assert ids[0] == ids[1] and len(ids[0]) == 1, (asked, ids)
    given = asked.headers.get("x-request-id", "")
    mine = ids[0] == [given]
    headers = {name: reply.headers.get_list(name) for name in _COMPARED}
    return reply.status_code, headers, mine, _body(reply, ids[0][0])


def _body(reply: httpx.Response, request_id: str) -> Any:
    if reply.status_code < 400:
        return len(reply.content) > 0
    try:
        return json.loads(reply.text.replace(request_id, "ID"))
    except ValueError:
        return reply.text
