"""An engine that is nothing but a pace: every stream gets a token each ``step_s`` from its own beginning on."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.chat.detokenizer import TextStream
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.engine.loop import EngineInfo
from agentcache.engine.spelling import Spelling
from agentcache.engine.stats import EngineStats, Metrics
from agentcache.engine.streams import OutputStream
from agentcache.request import FinishReason, Output, SamplingParams, SequenceReport

T = TypeVar("T")


@dataclass
class PacedEngine:
    """What the HTTP side needs of ``AsyncEngine``, on the event loop's own timers."""

    info: EngineInfo
    tokenizer: Tokenizer
    renderer: ChatRenderer
    words: list[int]
    step_s: float
    root_base: tuple[str, ...] = ("bench",)
    running: int = 0
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Request -> when it was handed over, and when its last token was."""

    def __post_init__(self) -> None:
        self._manager = CacheManager(1, self.info.page_size)

    def start(self) -> None:
        """Nothing has to be started."""

    async def stop(self) -> None:
        """Nothing has to be stopped."""

    async def settled(self) -> None:
        """Nothing is under way."""

    def now(self) -> float:
        return time.monotonic()

    def healthy(self) -> tuple[bool, str]:
        return True, ""

    def paged(self, ids: Sequence[int], root: bytes, bookmark: Any = None) -> PagedTokens:
        return PagedTokens(ids, self.info.page_size, root)

    async def inspect(self, look: Callable[[CacheManager], T]) -> T:
        return look(self._manager)

    def submit(self, prompt: Sequence[int], params: SamplingParams, *, request_id: str, **_: Any) -> OutputStream:
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle
        began, place = time.monotonic(), 0
        left = params.max_tokens or 1
        spelling = Spelling(lambda: TextStream(self.tokenizer, shown=params.shown_tokens))

        def end() -> None:
            if not timer.cancelled():  # streams may be ended more than once
                timer.cancel()
                self.running -= 1

        def say() -> None:
            nonlocal place, timer
            token = self.words[(began_at + place) % len(self.words)]
            place += 1
            if place < left:
                timer = loop.call_at(due + place * self.step_s, say)
                stream.push(Output(0, "", (token,), spelled=False))
                return
            self.running -= 1
            self.times[request_id.partition("-")[0]] = (began, time.monotonic())
            report = SequenceReport(len(prompt), left, 0, 0, 0, len(prompt) + left - 1, 0, None)
            last = Output(0, "", (token,), finish_reason=FinishReason.LENGTH, report=report, spelled=False)
            stream.push(last)

        began_at = hash(request_id)
        due = loop.time() + self.step_s
        timer = loop.call_at(due, say)
        self.running += 1
        stream = OutputStream(1, end, spelling)
        return stream

    def stats(self) -> EngineStats:
        metrics = Metrics()
        free = self.info.num_pages
        return EngineStats(free, 0, 0, 0, free, self.running, 0, {}, {}, dict(Counter()), {}, metrics.histograms)
