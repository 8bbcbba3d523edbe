"""Anthropic's envelope for errors, around whatever refuses a request under ``/v1/messages``."""

from __future__ import annotations

import json
import logging
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentcache.server.errors import ApiError, internal_error

logger = logging.getLogger(__name__)

PATH = "/v1/messages"
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "error", "request_id"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {
                "type": {"type": "string"},
                "message": {"type": "string", "description": "what was got and what was expected"},
                "details": {
                    "type": "object",
                    "properties": {"error_code": {"type": "string", "description": "stable and machine-readable"}},
                },
            },
        },
        "request_id": {"type": "string"},
    },
}


def envelope(status: int, message: str, code: str | None, request_id: str) -> dict[str, Any]:
    """The body of an error.  ``details`` holds this server's own stable code, as Anthropic's holds its."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    details = {} if code is None else {"details": {"error_code": code}}
    return {"type": "error", "error": {"type": kind, "message": message, **details}, "request_id": request_id}


def told_at(path: str, error: ApiError, request_id: str) -> dict[str, Any]:
    """The body of ``error`` as an answer to a request of ``path``."""
    return envelope(error.status, error.message, error.code, request_id) if _ours(path) else error.envelope()


class AnthropicErrors:
    """ASGI middleware: errors keep their status and headers, and their bodies are told in Anthropic's shape.

    It stands outside of all that can refuse a request: keys, limits, origins, routes that do not exist.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _ours(scope["path"]):
            await self._app(scope, receive, send)
            return
        answer = _Answer(str(scope.get("state", {}).get("request_id", "")), send)
        try:
            await self._app(scope, receive, answer.send)
        except Exception:
            if answer.started:
                raise
            logger.exception("a request to %s failed", PATH)
            error = internal_error()
            await error.response()(scope, receive, answer.send)


def _ours(path: str) -> bool:
    return path == PATH or path.startswith(PATH + "/")


class _Answer:
    """Passes an answer on; of an error, only when all of it is there."""

    def __init__(self, request_id: str, send: Send) -> None:
        self._request_id = request_id
        self._send = send
        self._held: Message | None = None
        self._body = b""
        self.started = False

    async def send(self, message: Message) -> None:
        self.started = True
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._held = message
            return
        if self._held is None:
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        start, body = self._held, _translated(self._held["status"], self._body, self._request_id)
        MutableHeaders(raw=start["headers"])["content-length"] = str(len(body))
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})


def _translated(status: int, body: bytes, request_id: str) -> bytes:
    """``body`` in the other envelope; what is none of this server's errors stays what it is."""
    try:
        error = json.loads(body)["error"]
        translated = envelope(status, error["message"], error["code"], request_id)
    except (ValueError, KeyError, TypeError):
        return body
    return json.dumps(translated, ensure_ascii=False).encode()
