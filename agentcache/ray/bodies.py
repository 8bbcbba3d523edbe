"""The body of a request on its way in, with an end to its patience: Ray's proxy waits for ever."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive

from agentcache.server.gate.connections import BODY_RATE, too_slow


class InTime:
    """An ASGI ``receive`` that gives up on a body as a server of ours does on its own connections.

    Args:
        seconds: for the body to arrive; each ``BODY_RATE`` bytes of it are given one more.
    """

    def __init__(self, receive: Receive, seconds: float) -> None:
        self._receive = receive
        self._seconds = seconds
        self._due = asyncio.get_running_loop().time() + seconds

    async def __call__(self) -> Message:
        """
        Raises:
            ApiError: 408.
        """
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._due - asyncio.get_running_loop().time()))
        except asyncio.TimeoutError:
            raise too_slow("body", self._seconds) from None
        self._due += len(message.get("body", b"")) / BODY_RATE
        return message
