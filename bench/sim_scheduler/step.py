"""Processor time of one scheduling step with many sequences that run and many that wait."""

from __future__ import annotations

import gc
import random
import statistics
import time
from dataclasses import asdict, dataclass

from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.request import Output, Request, SamplingParams, Sequence
from agentcache.scheduler.policy import POLICIES
from agentcache.scheduler.scheduler import Limits, Scheduler
from bench.sim_scheduler.runs import nearest
from bench.sim_scheduler.traces import ROOT, Texts

RUNNING, WAITING, STEPS = 256, 1_000, 200
PAGE_SIZE = 16


@dataclass(frozen=True)
class StepCost:
    """Medians over steps, and the 99th percentile of the whole."""

    name: str
    plan_ms: float
    commit_ms: float
    both_ms: float
    both_p99_ms: float

    def as_json(self) -> dict[str, object]:
        return asdict(self)


class Crowd:
    """A scheduler with every seat taken by a sequence that decodes, and a queue behind it: a tenth of it is cold."""

    def __init__(self, policy: str) -> None:
        self.rng = random.Random(0)
        self.texts = Texts(self.rng)
        self.scheduler = Scheduler(
            CacheManager(200_000, PAGE_SIZE), Limits(2048, RUNNING, max_waiting=10**6), POLICIES[policy]
        )
        self.heads = [self.texts(8_000) for _ in range(20)]
        self._asked = 0
        for number in range(RUNNING):
            self.ask(number, cold=False, draws=10**5)
        while len(self.scheduler.running) < RUNNING or any(s.output_len == 0 for s in self.scheduler.running):
            self.step()
        for number in range(WAITING):
            self.ask(number, cold=number % 10 == 0, draws=30)

    def ask(self, number: int, *, cold: bool, draws: int) -> None:
        head = self.texts(8_000) if cold else self.heads[number % len(self.heads)]
        tokens = PagedTokens(head, PAGE_SIZE, ROOT)
        tokens.extend(self.texts(400))
        request = Request(str(self._asked), [], SamplingParams(max_tokens=draws), ROOT, _nobody)
        request.program = f"program {number}"
        request.sequences = [Sequence(request, 0, tokens, len(tokens), draws, seed=0)]
        self._asked += 1
        self.scheduler.add(request)

    def step(self) -> tuple[float, float]:
        """Seconds of planning and of committing."""
        began = time.thread_time()
        plan = self.scheduler.plan()
        planned = time.thread_time()
        self.scheduler.commit(plan)
        committed = time.thread_time()
        for chunk in plan.chunks:
            for sequence in chunk.samples:
                sequence.tokens.append(self.rng.getrandbits(32))
        return planned - began, committed - planned

    def leave(self) -> None:
        """One that runs ends, and another takes its place in the queue."""
        self.scheduler.finish(self.rng.choice(self.scheduler.running))
        self.ask(self._asked, cold=self._asked % 10 == 0, draws=30)


def measure_steps(policy: str = "hrrn") -> list[StepCost]:
    """Nobody can be admitted; then one leaves and one is admitted in each step."""
    crowd = Crowd(policy)
    gc.disable()
    try:
        full = [crowd.step() for _ in range(STEPS)]
        turnover = []
        for _ in range(STEPS):
            crowd.leave()
            turnover.append(crowd.step())
    finally:
        gc.enable()
    return [_cost("every seat is taken", full), _cost("one leaves, one is admitted", turnover)]


def _cost(name: str, steps: list[tuple[float, float]]) -> StepCost:
    both = [1e3 * (plan + commit) for plan, commit in steps]
    return StepCost(
        name,
        plan_ms=1e3 * statistics.median(plan for plan, _ in steps),
        commit_ms=1e3 * statistics.median(commit for _, commit in steps),
        both_ms=statistics.median(both),
        both_p99_ms=nearest(both, 99),
    )


def _nobody(_: Output) -> None:
    """Outputs are read off the sequences."""
