"""What an ingress answers itself: behind the same ids, origins and envelopes as a server's own answers."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agentcache.server.anthropic.errors import AnthropicErrors
from agentcache.server.errors import ApiError, install_error_handlers
from agentcache.server.gate.origins import guard_origins
from agentcache.server.watch.request_ids import RequestIds
from agentcache.settings import Settings

_ANSWER = "agentcache.answer"
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]


class OwnAnswers:
    """Sends a response, or an error, in answer to any request."""

    def __init__(self, settings: Settings) -> None:
        app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
        install_error_handlers(app)

        async def answer(request: Request) -> Response:
            made: Callable[[], Response] = request.scope[_ANSWER]
            return made()

        app.add_route("/{path:path}", answer, methods=_METHODS)
        app.add_middleware(AnthropicErrors)
        guard_origins(app, settings)
        self._app: ASGIApp = RequestIds(app)

    async def send(self, made: Callable[[], Response], scope: Scope, receive: Receive, send: Send) -> None:
        """``made`` returns the answer, or raises the ``ApiError`` that it is; not asked where an origin is refused."""
        await self._app({**scope, "root_path": "", "state": {}, _ANSWER: made}, receive, send)

    async def refuse(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        def made() -> Response:
            raise error

        await self.send(made, scope, receive, send)
