"""The real engine core, scheduler and cache on a model that costs nothing: for counting tokens and pages.

The runner draws tokens that no two sequences share by accident, and moves a simulated clock by what a step would take.
"""

from __future__ import annotations

import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from agentcache.cache.disk import DiskTier
from agentcache.cache.hashing import namespace_root
from agentcache.cache.lower import LowerTiers
from agentcache.cache.manager import CacheManager
from agentcache.cache.tiers import Data
from agentcache.chat.detokenizer import TextDelta, TextStream
from agentcache.engine.bounds import Bounds
from agentcache.engine.core import EngineCore
from agentcache.faults import Clock
from agentcache.request import Output, Request, SamplingParams, SequenceReport, TokenLogprob
from agentcache.scheduler.plan import StepPlan, StepResult
from agentcache.scheduler.scheduler import Limits, Scheduler

ROOT = namespace_root("bench")
VOCAB = 1 << 20
MAX_LEN = 1 << 20


class SimulatedClock(Clock):
    """Seconds that pass only when a step is run or somebody waits."""

    def __call__(self) -> float:
        return self._ahead


class FreeRunner:
    """Implements ``scheduler.plan.Runner``: a step takes ``step_s`` and ``row_s`` a row, on the simulated clock only."""

    def __init__(self, clock: Clock, step_s: float = 0.02, row_s: float = 0.001) -> None:
        self._clock = clock
        self._step_s = step_s
        self._row_s = row_s

    def run(self, plan: StepPlan) -> StepResult:
        self._clock.advance(self._step_s + self._row_s * plan.num_tokens)
        samples = [
            [TokenLogprob(hash((sequence.seed, chunk.end)) % VOCAB, 0.0) for sequence in chunk.samples]
            for chunk in plan.chunks
        ]
        return StepResult(samples, [None for _ in plan.chunks])


class NoText:
    """In place of a detokeniser."""

    def push(self, token: int) -> TextDelta:
        return TextDelta("", None)

    def flush(self) -> str:
        return ""


@dataclass
class Answer:
    """What came back for one request."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    reports: list[SequenceReport] = field(default_factory=list)

    def __call__(self, output: Output) -> None:
        assert output.error is None, output.error
        self.tokens.setdefault(output.index, []).extend(output.token_ids)
        if output.report is not None:
            self.reports.append(output.report)


@dataclass(frozen=True)
class Shape:
    """``token_budget``: rows a step."""

    num_pages: int
    page_size: int = 16
    tails: bool = True
    enabled: bool = True
    token_budget: int = 4096
    max_running: int = 64
    disk_dir: Path | None = None


class EmptyPages:
    """Implements ``cache.tiers.PageIO``: pages that hold nothing, so that storing one costs only its tokens."""

    def read_page(self, page: int) -> bytes:
        return b""

    def write_page(self, page: int, data: Data) -> None:
        assert not data


class FreeEngine:
    """An engine to send prompts to; nothing is random but by ``seed``."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        self.clock = SimulatedClock()
        self.manager = CacheManager(
            shape.num_pages, shape.page_size, enabled=shape.enabled, tails=shape.tails, lower=_disk(shape.disk_dir)
        )
        self.core = EngineCore(
            Scheduler(self.manager, Limits(shape.token_budget, shape.max_running, max_waiting=100_000)),
            FreeRunner(self.clock),
            lambda stop, shown: cast(TextStream, NoText()),
            eos_token_ids=frozenset(),
            bounds=Bounds(MAX_LEN, min(MAX_LEN, shape.num_pages * shape.page_size), VOCAB, shape.max_running),
            clock=self.clock,
            seeds=random.Random(seed),
        )
        self.peak_live = 0
        """Most pages that requests held at once."""
        self._sent = 0

    def send(self, prompt: Seq[int], output_tokens: int = 1, n: int = 1) -> Answer:
        answer = Answer()
        self._sent += 1
        params = SamplingParams(max_tokens=output_tokens, n=n)
        self.core.add(Request(str(self._sent), list(prompt), params, ROOT, answer))
        return answer

    def step(self) -> bool:
        worked = self.core.step()
        self.peak_live = max(self.peak_live, self.manager.counts().live)
        return worked

    def run(self) -> None:
        """Until nothing is left to do."""
        while self.core.has_work:
            self.step()
        faults = self.core.check()
        assert not faults, faults


def _disk(folder: Path | None) -> LowerTiers | None:
    if folder is None:
        return None
    return LowerTiers([DiskTier(folder, capacity=1 << 30, fingerprint="bench")], EmptyPages())


@dataclass(frozen=True)
class Tally:
    """Tokens of some requests.  ``prefilled``: positions that were run other than those of tokens just drawn."""

    prompt: int
    cached: int
    prefilled: int

    @classmethod
    def of(cls, answers: Seq[Answer]) -> Tally:
        reports = [report for answer in answers for report in answer.reports]
        # A drawn token is run once to draw the next; the last one is not.
        drawn = sum(max(0, report.completion_tokens - 1) for report in reports)
        # The prompt of a request with several sequences counts once.
        prompt = sum(answer.reports[0].prompt_tokens for answer in answers)
        return cls(
            prompt=prompt,
            cached=sum(report.cached_tokens for report in reports),
            prefilled=sum(report.computed_tokens for report in reports) - drawn,
        )

    @property
    def hit_rate(self) -> float:
        return self.cached / self.prompt


class Texts:
    """Token lists that share nothing by accident: no two begin with the same token."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._first = 0

    def __call__(self, length: int) -> list[int]:
        self._first += 1
        return [self._first, *(self._rng.randrange(VOCAB) for _ in range(length - 1))]
