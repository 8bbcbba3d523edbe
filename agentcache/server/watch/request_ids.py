"""Every answer carries an id, the client's own where it sent a usable one, and the name of the replica that gave it."""

from __future__ import annotations

import re
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = ("x-request-id", "request-id")
"""Both are sent: OpenAI's clients read the first, Anthropic's the second."""
REPLICA = "x-agentcache-replica"
"""Sent by servers that have a name among others."""
_USABLE = re.compile(r"[A-Za-z0-9._-]{1,128}")


class RequestIds:
    """ASGI middleware, outermost, so that answers to failures carry the id as well.

    Puts the id into ``scope["state"]["request_id"]`` (``request.state.request_id``).  Messages pass one by one, as they come.
    """

    def __init__(self, app: ASGIApp, replica: str | None = None) -> None:
        self._app = app
        self._replica = [] if replica is None else [(REPLICA.encode(), replica.encode())]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = chosen_id(Headers(scope=scope).get(HEADERS[0]))
        scope.setdefault("state", {})["request_id"] = request_id
        added = [*((name.encode(), request_id.encode()) for name in HEADERS), *self._replica]
        taken = {name for name, _ in added}

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [header for header in message.get("headers", ()) if header[0].lower() not in taken]
                message = {**message, "headers": [*kept, *added]}
            await send(message)

        await self._app(scope, receive, send_with_id)


def chosen_id(sent: str | None) -> str:
    """What the client sent if it is 1 to 128 of ``A-Za-z0-9._-``, which are safe in headers and logs; else a new id."""
    return sent if sent is not None and _USABLE.fullmatch(sent) else f"req_{uuid4().hex}"
