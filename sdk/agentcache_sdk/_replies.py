"""Bodies and failures of the server as results and errors.  No I/O."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timezone
from typing import Any, NoReturn, TypeVar

import httpx
from pydantic import ValidationError

from agentcache_sdk.errors import (
    APIError,
    BadRequest,
    Busy,
    ConnectionFailed,
    ContextOverflow,
    NotFound,
    RateLimited,
    ServerError,
    SessionDiverged,
    Timeout,
)
from agentcache_sdk.types import CacheReport, Choice, ToolCall, Turn, Usage, Wire

W = TypeVar("W", bound=Wire)

_GO_ON = "go on from its messages, client.session(messages=session.messages), or from a snapshot, client.restore(name)"
"""What to do when the server has lost a session: its time to live was over, or the server was restarted."""


@dataclass(frozen=True)
class Reply:
    """A whole answer: its status, headers and body."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def body(self) -> Any:
        """The JSON body.

        Raises:
            APIError: it is not JSON.
        """
        try:
            return json.loads(self.content)
        except ValueError:
            self.unreadable(f"expected JSON, got {self.content[:120]!r}")

    def unreadable(self, why: str) -> NoReturn:
        request_id = self.headers.get("x-request-id")
        raise APIError(
            f"the server's answer cannot be read: {why}", self.status, "unreadable_response", None, request_id
        )

    def parse(self, model: type[W], body: Any) -> W:
        """``body`` as a ``model``.

        Raises:
            APIError: it has another shape.
        """
        try:
            return model.model_validate(body)
        except ValidationError as error:
            first = error.errors()[0]
            self.unreadable(f"{model.__name__}: {'.'.join(map(str, first['loc']))}: {first['msg']}")


def turn_of(reply: Reply) -> Turn:
    return turn_from_body(reply, reply.body())


def turn_from_body(reply: Reply, body: Any) -> Turn:
    """A chat completion or completion body as a turn.

    Raises:
        APIError: it has another shape.
    """
    if not isinstance(body, dict) or not isinstance(body.get("choices"), list) or not body["choices"]:
        reply.unreadable(f"expected an object with choices, got {str(body)[:120]}")
    choices = [_choice(reply, choice) for choice in body["choices"]]
    usage = reply.parse(Usage, body.get("usage") or {})
    # Servers that send no report still say in `usage` how much was cached.
    counts = {"prompt_tokens": usage.prompt_tokens, "cached_tokens": usage.cached_tokens}
    cache = reply.parse(CacheReport, {**counts, **(body.get("agentcache") or {})})
    first = {name: getattr(choices[0], name) for name in (*Choice.model_fields, *(choices[0].model_extra or {}))}
    return Turn(**first, usage=usage, cache=cache, choices=choices, raw=body)


def _choice(reply: Reply, choice: Any) -> Choice:
    if not isinstance(choice, dict):
        reply.unreadable(f"expected a choice, got {str(choice)[:120]}")
    message = choice.get("message") or {}
    text = message.get("content") if "message" in choice else choice.get("text")
    calls = [_tool_call(reply, call) for call in message.get("tool_calls") or []]
    return reply.parse(Choice, {**choice, "message": message, "text": text or "", "tool_calls": calls})


def _tool_call(reply: Reply, call: Any) -> ToolCall:
    if not isinstance(call, dict):
        reply.unreadable(f"expected a tool call, got {str(call)[:120]}")
    function = call.get("function") or {}
    rest = {key: value for key, value in call.items() if key != "function"}
    return reply.parse(ToolCall, {**rest, "id": call.get("id") or "", **function})


def error_of(reply: Reply) -> APIError:
    """The error that a status of 300 or more stands for."""
    try:
        body = json.loads(reply.content)
    except ValueError:
        body = None
    error = body.get("error") if isinstance(body, dict) else None
    request_id = reply.headers.get("x-request-id")
    if isinstance(error, dict):
        failure = api_error(error, reply.status, request_id)
    else:
        text = " ".join(reply.content[:300].decode("utf-8", "replace").split())
        kind = BadRequest if reply.status == 422 else _class_of(reply.status, None)
        message = f"the server answered {reply.status}: {text or 'no body'}"
        failure = kind(message, reply.status, None, None, request_id)
    failure.retry_after = _seconds(reply.headers.get("retry-after"))
    return failure


def api_error(error: Mapping[str, Any], status: int, request_id: str | None = None) -> APIError:
    """An OpenAI error object as an exception."""
    code = error.get("code")
    code = None if code is None else str(code)
    message = str(error.get("message") or "the server gave no reason")
    if code == "session_not_found":
        message = f"{message}; {_GO_ON}"
    return _class_of(status, code)(message, status, code, error.get("param"), request_id)


def _class_of(status: int, code: str | None) -> type[APIError]:
    if code == "context_length_exceeded":
        return ContextOverflow
    if status == 429:
        return Busy if code == "session_busy" else RateLimited
    by_status: dict[int, type[APIError]] = {401: APIError, 403: APIError, 404: NotFound, 422: SessionDiverged}
    if status in by_status:
        return by_status[status]
    if 400 <= status < 500:
        return BadRequest
    return ServerError if status >= 500 else APIError


def _seconds(retry_after: str | None) -> float | None:
    """``Retry-After``: a number of seconds, or a date."""
    if not retry_after:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(retry_after)
            # A date of HTTP's is in GMT whether it says so or not.
            seconds = date.replace(tzinfo=date.tzinfo or timezone.utc).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds < float("inf") else None


def transport_error(error: httpx.RequestError, url: str) -> ConnectionFailed | Timeout:
    """What httpx says about a request that got no whole answer."""
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return Timeout(f"{url}: no connection within the client's timeout")
    if isinstance(error, httpx.TimeoutException):
        return Timeout(f"{url}: the server sent nothing within the client's timeout")
    if isinstance(error, httpx.ConnectError):
        return ConnectionFailed(f"{url}: cannot connect ({error}); is `agentcache serve` running there?", sent=False)
    return ConnectionFailed(f"{url}: the connection was lost before the reply was complete ({_why(error)})")


def stream_error(error: httpx.RequestError | None, url: str) -> ConnectionFailed | Timeout:
    """What ended a stream before its ``[DONE]``: an error, or (``None``) the end of the body."""
    if isinstance(error, httpx.TimeoutException):
        return Timeout(f"{url}: the stream went silent for longer than the client's timeout")
    why = "it ended without [DONE]" if error is None else _why(error)
    return ConnectionFailed(f"{url}: the connection was lost in the middle of the stream ({why}); the turn is dropped")


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
