"""Ray's proxy adds a header of its own to every answer, under the name of one of ours."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ADDED_BY_RAY = b"x-request-id"


class WithoutId:
    """Leaves ``x-request-id`` to Ray's proxy, which has given the request the same id already, unless the client chose one that
    is of no use; ``request-id`` stays."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [header for header in message.get("headers", ()) if header[0].lower() != _ADDED_BY_RAY]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_without)
