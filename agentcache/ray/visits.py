"""A client's request while it is answered, and what the client was told of the answer."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive, Send

from agentcache.local.exchange import Head
from agentcache.ray.cut import CutStream
from agentcache.ray.exchange import AnswerCutError, Sent
from agentcache.server.errors import ApiError


class Answer:
    """What the client is told."""

    def __init__(self, sent: Sent, send: Send) -> None:
        self.begun = False
        self._path = sent.path
        self._send = send
        self._stream: CutStream | None = None

    async def tell(self, head: Head | None, body: bytes, *, last: bool) -> None:
        if head is not None:
            self._stream = CutStream(self._path, head)
            self.begun = True
            await self._send({"type": "http.response.start", "status": head.status, "headers": list(head.headers)})
        if self._stream is not None:
            self._stream.note(body)
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})

    async def cut(self, error: ApiError) -> None:
        """
        Raises:
            AnswerCutError: the answer has no words for it; the connection must be cut.
        """
        if self._stream is None or not self._stream.streams:
            raise AnswerCutError(error.message)
        await self._send({"type": "http.response.body", "body": self._stream.ending(error), "more_body": False})


class Visit:
    """One client's request while it is answered.  The block that it is around ends at once when the client has gone, or ``cut``
    is called; all of the body must have been received before it.

    Attributes:
        answer: what the client is told, once it is told anything.
        was_cut: the block was ended by ``cut``.
    """

    def __init__(self, receive: Receive) -> None:
        self.answer: Answer | None = None
        self.was_cut = False
        self._gone = False
        self._receive = receive
        self._task: asyncio.Task[Any] | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._watcher = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._cancel()

    def cut(self) -> None:
        if self._task is not None and not self._gone:
            self.was_cut = True
            self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        task, self._task = self._task, None
        assert task is not None
        assert self._watcher is not None
        self._watcher.cancel()
        if kind is None or not issubclass(kind, asyncio.CancelledError) or not (self._gone or self.was_cut):
            self.was_cut = False
            return False
        if hasattr(task, "uncancel"):  # since Python 3.11
            task.uncancel()
        return True

    async def end(self, error: ApiError) -> None:
        """
        Raises:
            ApiError: nothing was told yet.
            AnswerCutError: see ``Answer.cut``.
        """
        if self.answer is None or not self.answer.begun:
            raise error
        await self.answer.cut(error)
