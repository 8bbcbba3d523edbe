"""All sequences of one HTTP request: gathered from the engine, merged while nobody takes them, aborted when nobody will.

::

    engine ──Output──► pending[choice] ──take()──► socket
                       merged: at most one delta a choice waits, however slow the socket is
    choice = prompt * n + index
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from starlette.types import Receive

from agentcache.request import FinishReason, Output, SequenceReport, TokenLogprob
from agentcache.server.errors import ApiError, ClientGoneError, shutting_down

if TYPE_CHECKING:
    from agentcache.engine.streams import OutputStream
    from agentcache.server.lifecycle import Lifecycle


@dataclass(slots=True)
class Delta:
    """What one choice gained since it was last taken."""

    choice: int
    pieces: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    end_token: int | None = None
    report: SequenceReport | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def add(self, output: Output) -> None:
        if output.text:
            self.pieces.append(output.text)
        self.token_ids.extend(output.token_ids)
        self.logprobs.extend(output.logprobs)
        if output.prompt_logprobs is not None:
            self.prompt_logprobs = output.prompt_logprobs
        if output.finish_reason is not None:
            self.finish_reason = output.finish_reason
            self.stop_reason = output.stop_reason
            self.end_token = output.end_token
            self.report = output.report

    def merge(self, later: Delta) -> None:
        """Append what the same choice gained after this."""
        self.pieces += later.pieces
        self.token_ids += later.token_ids
        if later.finish_reason is not None:
            self.finish_reason = later.finish_reason
            self.stop_reason = later.stop_reason
            self.end_token = later.end_token
            self.report = later.report


class Generation:
    """Use inside ``async with generation.watched(receive)``; leaving it aborts whatever still runs.

    Args:
        streams: the engine's streams, one a prompt.
        n: sequences a prompt.
        lifecycle: told of this generation while it runs.
    """

    def __init__(self, streams: Sequence[OutputStream], n: int, lifecycle: Lifecycle) -> None:
        self._streams = streams
        self._n = n
        self._lifecycle = lifecycle
        self._pending: dict[int, Delta] = {}
        self._unfinished = len(streams) * n
        self._changed = asyncio.Event()
        self.first_token: float | None = None
        """When the first token of any sequence came, in Unix seconds, however late it is taken."""
        self._failure: ApiError | ClientGoneError | None = None
        self._until = 0.0
        self._alarm: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def watched(self, receive: Receive) -> AsyncIterator[Generation]:
        """Take outputs in and watch for the client's hang-up."""
        watch = asyncio.ensure_future(self._watch(receive))
        self._lifecycle.enter(self)
        for prompt, stream in enumerate(self._streams):
            stream.listen(partial(self._take_in, prompt))
        try:
            yield self
        finally:
            self._lifecycle.leave(self)
            self.abort()
            if self._alarm is not None:
                self._alarm.cancel()
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    def fail(self, error: ApiError | ClientGoneError) -> None:
        """End it with ``error``, after what is pending was taken; the first error wins."""
        if self._failure is None:
            self._failure = error
        self.abort()
        self._changed.set()

    def abort(self) -> None:
        for stream in self._streams:
            stream.abort()

    async def take(self, patience_s: float) -> list[Delta] | None:
        """Wait for something new and hand it over, one delta a choice; empty once every sequence has finished.

        ``None`` when nothing came for ``patience_s`` seconds.

        Raises:
            ApiError: the engine failed, or the server is shutting down.
            ClientGoneError: the client hung up.
        """
        loop = asyncio.get_running_loop()
        until = self._until = loop.time() + patience_s
        while not self._pending or self._client_gone:
            if self._unfinished == 0 and not self._client_gone:
                return []
            if self._alarm is None:
                self._alarm = loop.call_at(until, self._ring)
            await self._settled()
            if not self._pending and self._failure is None and self._unfinished and loop.time() >= until:
                return None
        taken = list(self._pending.values())
        self._pending.clear()
        return taken

    def _ring(self) -> None:
        """One alarm goes through all calls of ``take``: setting one for each token would cost as much as sending it."""
        loop = asyncio.get_running_loop()
        self._alarm = None
        if loop.time() < self._until:
            self._alarm = loop.call_at(self._until, self._ring)
        else:
            self._changed.set()

    async def finish(self) -> list[Delta]:
        """Wait for the end of every sequence; all that each generated, by choice.

        Raises:
            ApiError, ClientGoneError: as ``take``.
        """
        while self._unfinished or self._client_gone:
            await self._settled()
        return [self._pending[choice] for choice in sorted(self._pending)]

    @property
    def untaken(self) -> list[Delta]:
        """What was generated and was not taken (``finish`` leaves what it returns)."""
        return [self._pending[choice] for choice in sorted(self._pending)]

    @property
    def _client_gone(self) -> bool:
        """Nobody takes what is pending: the request was cut, also when its last token is there already."""
        return isinstance(self._failure, ClientGoneError)

    async def _settled(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._changed.clear()
        await self._changed.wait()

    def _take_in(self, prompt: int, output: Output) -> None:
        if self._failure is not None:
            return
        if output.finish_reason in (FinishReason.ERROR, FinishReason.ABORT):
            self.fail(self._broken_off(output))
            return
        if self.first_token is None and (output.token_ids or output.end_token is not None):
            self.first_token = time.time()
        choice = prompt * self._n + output.index
        pending = self._pending.get(choice)
        if pending is None:
            pending = self._pending[choice] = Delta(choice)
        pending.add(output)
        if output.finish_reason is not None:
            self._unfinished -= 1
        self._changed.set()

    def _broken_off(self, output: Output) -> ApiError:
        if self._lifecycle.closing:
            return shutting_down()
        return ApiError(500, output.error or "the request was ended by the server", code="engine_error")

    async def _watch(self, receive: Receive) -> None:
        """A connection whose client closed only its sending half counts as hung up: uvicorn closes the other half."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.fail(ClientGoneError())
