"""An engine in this process, and what it answers down to the last bit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentcache.cache.hashing import namespace_root
from agentcache.engine.build import build_engine
from agentcache.engine.loop import AsyncEngine
from agentcache.request import FinishReason, SamplingParams, SequenceReport, TokenLogprob
from agentcache.settings import Settings

GREEDY = SamplingParams(temperature=0, logprobs=3, ignore_eos=True, max_tokens=16)
SEEDED = replace(GREEDY, temperature=1.5, seed=7, top_p=0.95, frequency_penalty=0.3)


@dataclass(frozen=True)
class Ask:
    prompt: list[int]
    params: SamplingParams


@dataclass(frozen=True)
class Bits:
    """What must not depend on anything but the request."""

    ids: tuple[int, ...]
    logprobs: tuple[str, ...]
    """The log-probability of each token and of its three best alternatives, as hexadecimal numbers."""
    prompt: tuple[str, ...] = ()
    """The same of the prompt's tokens, where asked for."""


@dataclass(frozen=True)
class Reply:
    bits: Bits
    report: SequenceReport

    @property
    def ids(self) -> list[int]:
        return list(self.bits.ids)


class Engine:
    """Requests given to ``answer`` together are in the engine together."""

    def __init__(self, engine: AsyncEngine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._asked = 0

    def answer(self, *asks: Ask) -> list[Reply]:
        """One reply a request, each of which has one sequence."""
        return [reply for (reply,) in self._loop.run_until_complete(self._answers(asks))]

    def forks(self, ask: Ask, count: int) -> list[Reply]:
        """``count`` sequences of one request."""
        asked = Ask(ask.prompt, replace(ask.params, n=count))
        return self._loop.run_until_complete(self._answers([asked]))[0]

    def evictions(self) -> int:
        return sum(self._engine.stats().evictions.values())

    async def _answers(self, asks: Sequence[Ask]) -> list[list[Reply]]:
        return list(await asyncio.gather(*map(self._answer, asks)))

    async def _answer(self, ask: Ask) -> list[Reply]:
        self._asked += 1
        name = f"request-{self._asked}"
        ids: list[list[int]] = [[] for _ in range(ask.params.n)]
        logprobs: list[list[str]] = [[] for _ in range(ask.params.n)]
        prompts: list[tuple[str, ...]] = [()] * ask.params.n
        reports: list[SequenceReport | None] = [None] * ask.params.n
        stream = self._engine.submit(ask.prompt, ask.params, root=namespace_root("tests"), request_id=name)
        async with stream:
            async for output in stream:
                assert output.finish_reason in {None, FinishReason.LENGTH}, output.error
                ids[output.index] += output.token_ids
                logprobs[output.index] += map(_hexadecimal, output.logprobs)
                if output.prompt_logprobs is not None:
                    prompts[output.index] = tuple(_hexadecimal(entry) for entry in output.prompt_logprobs if entry)
                reports[output.index] = output.report or reports[output.index]
        replies = []
        for tokens, values, prompt, report in zip(ids, logprobs, prompts, reports):
            assert report is not None and len(tokens) == len(values) == ask.params.max_tokens
            replies.append(Reply(Bits(tuple(tokens), tuple(values), prompt), report))
        return replies


def _hexadecimal(entry: TokenLogprob) -> str:
    top = " ".join(f"{token}:{value.hex()}" for token, value in entry.top)
    return f"{entry.token}:{entry.logprob.hex()} of {top}"


@contextmanager
def running(folder: Path | str, **settings: Any) -> Iterator[Engine]:
    """An engine of its own for ``folder``: CPU, float32, one thread unless told otherwise."""
    chosen = {"device": "cpu", "dtype": "float32", "threads": 1, **settings}
    engine = build_engine(Settings(model=str(folder), **chosen))
    loop = asyncio.new_event_loop()
    engine.start()
    try:
        yield Engine(engine, loop)
    finally:
        loop.run_until_complete(engine.stop())
        loop.close()
