"""Errors as HTTP shows them: one envelope, a status that fits, no class name and no traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from agentcache.dialects.wording import shown
from agentcache.errors import AgentCacheError, EngineFailingError, EngineStoppedError, QueueFullError, RequestError
from agentcache.sessions.records import RecordDivergedError
from agentcache.sessions.session import SessionBusyError
from agentcache.sessions.snapshots import SnapshotDivergedError, SnapshotFailedError, SnapshotNotFoundError
from agentcache.sessions.store import SessionNotFoundError, TooManySessionsError
from agentcache.sessions.vault import VaultUnavailableError

logger = logging.getLogger(__name__)

CLIENT_GONE = 499
"""Status of requests whose client hung up, as proxies log it."""

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}


_OF_SESSIONS: dict[type[AgentCacheError], tuple[int, str, str]] = {
    SessionNotFoundError: (404, "session_not_found", "session"),
    SessionBusyError: (429, "session_busy", "session"),
    TooManySessionsError: (429, "too_many_sessions", "session"),
    RecordDivergedError: (422, "session_diverged", "session"),
    VaultUnavailableError: (503, "session_vault_unavailable", "session"),
    SnapshotNotFoundError: (404, "snapshot_not_found", "from_snapshot"),
    SnapshotDivergedError: (422, "session_diverged", "from_snapshot"),
    SnapshotFailedError: (500, "snapshot_failed", "name"),
}
_LONGEST = 1000
"""Characters of a message and of a field's name: what a client sent is not sent back in full, however long it was."""


class ApiError(Exception):
    """What a client is told.

    Args:
        status: HTTP status.
        message: what was got and what was expected.
        param: the field of the request that is the matter, if one is.
        code: a stable machine-readable code.
        headers: HTTP headers that belong to the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = _cut(message)
        self.param = None if param is None else _cut(param)
        self.code = code
        self.headers = headers

    def envelope(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.envelope(), self.status, headers=self.headers)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


class ClientGoneError(Exception):
    """The client hung up: there is nobody to answer."""


def bad_field(field: str, message: str, *, code: str | None = None) -> ApiError:
    """A 400 that names ``field``."""
    return ApiError(400, f"{field}: {message}", param=field, code=code or "invalid_value")


def internal_error() -> ApiError:
    return ApiError(
        500, "the server failed while serving this request; the cause is in its log", code="internal_server_error"
    )


def shutting_down() -> ApiError:
    return ApiError(503, "the server is shutting down", code="shutting_down", headers={"retry-after": "5"})


def from_runtime(error: AgentCacheError) -> ApiError:
    """How an error of the runtime reads over HTTP."""
    if isinstance(error, RequestError):
        return ApiError(400, str(error), param=error.param, code=error.code or "invalid_value")
    if isinstance(error, QueueFullError):
        return ApiError(429, str(error), code="queue_full", headers={"retry-after": str(error.retry_after_s)})
    if isinstance(error, EngineFailingError):
        return ApiError(503, str(error), code="engine_failing", headers={"retry-after": str(error.retry_after_s)})
    if isinstance(error, EngineStoppedError):
        return ApiError(503, str(error), code="engine_stopped")
    if (answer := _OF_SESSIONS.get(type(error))) is not None:
        status, code, param = answer
        headers = {"retry-after": "1"} if status in (429, 503) else None
        return ApiError(status, str(error), param=param, code=code, headers=headers)
    logger.error("the runtime failed", exc_info=error)
    return internal_error()


@contextmanager
def api_refusals() -> Iterator[None]:
    """What the runtime refuses inside is refused as HTTP has it."""
    try:
        yield
    except RequestError as error:
        raise from_runtime(error) from error


def install_error_handlers(app: FastAPI) -> None:
    """Every way a request can fail answers in the one envelope."""

    @app.exception_handler(ApiError)
    async def api_error(_: Request, error: ApiError) -> JSONResponse:
        return error.response()

    @app.exception_handler(AgentCacheError)
    async def runtime_error(_: Request, error: AgentCacheError) -> JSONResponse:
        return from_runtime(error).response()

    @app.exception_handler(ClientDisconnect)
    async def hung_up(_: Request, __: ClientDisconnect) -> Response:
        """In the middle of the body; nobody reads the answer, and it is no failure of the server."""
        return Response(status_code=CLIENT_GONE)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        wrong = error.errors()[0]
        name, why = str(wrong["loc"][-1]), str(wrong["msg"])
        return bad_field(name, f"got {shown(wrong['input'])}, {why[:1].lower()}{why[1:]}").response()

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers) if error.headers else None
        if error.status_code == 404:
            message = f"no route {request.method} {shown(request.url.path)}"
        elif error.status_code == 405:
            allowed = (headers or {}).get("Allow", "another method")
            message = f"{request.url.path} does not take {request.method}: use {allowed}"
        else:
            message = str(error.detail)
        codes = {404: "not_found", 405: "method_not_allowed"}
        return ApiError(error.status_code, message, code=codes.get(error.status_code), headers=headers).response()

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        return internal_error().response()
