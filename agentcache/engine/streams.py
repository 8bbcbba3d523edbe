"""What one request produces, on its way from the engine's thread to whoever reads it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from agentcache.request import Output


class OutputStream:
    """What one request produces, as an async iterator of ``Output``.

    A reader that is slower than the engine gets fewer, longer outputs: what is pending for a sequence is merged, so memory
    is bounded by the reply itself.  Leaving ``async with`` before the end aborts the request.
    """

    def __init__(self, num_sequences: int, abort: Callable[[], None]) -> None:
        self._abort = abort
        self._unfinished = num_sequences
        self._pending: dict[int, Output] = {}
        self._order: deque[int] = deque()
        self._wake = asyncio.Event()

    def push(self, output: Output) -> None:
        """On the event loop only."""
        waiting = self._pending.get(output.index)
        if waiting is None:
            self._order.append(output.index)
        self._pending[output.index] = output if waiting is None else _merge(waiting, output)
        self._wake.set()

    def __aiter__(self) -> OutputStream:
        return self

    async def __anext__(self) -> Output:
        while not self._order:
            if not self._unfinished:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        output = self._pending.pop(self._order.popleft())
        if output.finish_reason is not None:
            self._unfinished -= 1
        return output

    def abort(self) -> None:
        """End the request within a step; does nothing when it is over."""
        if self._unfinished:
            self._abort()

    async def __aenter__(self) -> OutputStream:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.abort()


def _merge(first: Output, second: Output) -> Output:
    return replace(
        second,
        text=first.text + second.text,
        token_ids=first.token_ids + second.token_ids,
        logprobs=first.logprobs + second.logprobs,
        prompt_logprobs=first.prompt_logprobs or second.prompt_logprobs,
    )
