"""What one request produces, on its way from the engine's thread to whoever reads it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from agentcache.engine.spelling import Spelling
from agentcache.request import FinishReason, Output

logger = logging.getLogger(__name__)


class OutputStream:
    """What one request produces, as an async iterator of ``Output``.

    A reader that is slower than the engine gets fewer, longer outputs: what is pending for a sequence is merged, so memory
    is bounded by the reply itself.  Leaving ``async with`` before the end aborts the request.

    Text that the engine did not make is made here as outputs are read.  Where that fails, the sequence ends with an error,
    and the rest of its request is aborted.

    Args:
        num_sequences: of the request.
        abort: ends the request in the engine.
        spelling: makes the text; not needed where every output comes with its own.
    """

    def __init__(self, num_sequences: int, abort: Callable[[], None], spelling: Spelling | None = None) -> None:
        self._abort = abort
        self._spelling = spelling
        self._failed: set[int] = set()
        self._aborted = False
        self._unfinished = num_sequences
        self._pending: dict[int, Output] = {}
        self._order: deque[int] = deque()
        self._wake = asyncio.Event()
        self._listener: Callable[[Output], None] | None = None

    def listen(self, listener: Callable[[Output], None]) -> None:
        """Have every output handed over as it comes, in place of iterating: no task has to wake up for a token.

        On the event loop, once; ``listener`` must not block, and what it raises is its own matter.
        """
        self._listener = listener
        while self._order:
            listener(self._next())

    def push(self, output: Output) -> None:
        """On the event loop only."""
        if output.index in self._failed:
            return
        if self._listener is not None:
            self._listener(self._read(output))
            return
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
        return self._next()

    def _next(self) -> Output:
        return self._read(self._pending.pop(self._order.popleft()))

    def _read(self, output: Output) -> Output:
        spelled = self._spelled(output)
        if spelled.finish_reason is not None:
            self._unfinished -= 1
        return spelled

    def _spelled(self, output: Output) -> Output:
        if output.spelled or self._spelling is None:
            return output
        try:
            return self._spelling.spell(output)
        except Exception:
            logger.exception("tokens of a request did not become text")
            self._failed.add(output.index)
            self.abort()
            reason = "the engine failed to turn a token of this request into text"
            return Output(output.index, "", finish_reason=FinishReason.ERROR, error=reason)

    def abort(self) -> None:
        """End the request within a step; does nothing when it is over, or was told so already."""
        if self._unfinished and not self._aborted:
            self._aborted = True
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
        spelled=first.spelled and second.spelled,
    )
