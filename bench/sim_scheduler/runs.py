"""A trace against a policy, and what came of it."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentcache.scheduler.scheduler import Limits
from bench.sim_scheduler.engine import Figures, Record, SimEngine
from bench.sim_scheduler.traces import TraceShape, Turn, agent_sessions, lognormal, open_trace, warm_contexts


@dataclass(frozen=True, slots=True)
class Setup:
    """One run.  ``programs``: whether turns say which session they belong to."""

    trace: str
    policy: str
    shape: TraceShape
    num_pages: int
    limits: Limits
    seed: int = 0
    programs: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds, but for counts."""

    setup: Setup
    ttft: tuple[float, ...]
    """Of every request, in order of arrival."""
    kinds: tuple[str, ...]
    requests_per_s: float
    hit_rate: float
    overtaken: int
    """Most often that a request was overtaken."""
    preemptions: int
    longest_gap: float
    step_cpu: tuple[float, ...]
    steps: int
    sessions_s: tuple[float, ...]
    """From a session's first request to its last token."""

    @property
    def mean(self) -> float:
        return sum(self.ttft) / len(self.ttft)

    def percentile(self, percent: float, kind: str | None = None) -> float:
        """Of the time to first token, nearest rank."""
        chosen = [t for t, k in zip(self.ttft, self.kinds, strict=True) if kind in (None, k)]
        return nearest(chosen, percent)


def nearest(values: Sequence[float], percent: float) -> float:
    """Nearest-rank percentile; 0 of nothing."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)] if values else 0.0


def run(setup: Setup) -> Result:
    """Simulate from an empty queue until everything was answered."""
    arrivals = Arrivals(setup)
    engine = SimEngine(setup.num_pages, setup.shape.page_size, setup.limits, setup.policy, arrivals.answered)
    arrivals.begin(engine)
    while arrivals or engine.scheduler.has_work:
        if not engine.scheduler.has_work:
            engine.figures.now = max(engine.figures.now, arrivals.next_at)
        for turn in arrivals.due(engine.figures.now):
            engine.submit(turn, programs=setup.programs)
        if not engine.step(lambda: arrivals.next_at):
            raise RuntimeError("work is left, but nothing can run")
    faults = engine.scheduler.check()
    if faults:
        raise RuntimeError("; ".join(faults))
    return _result(setup, engine.figures, arrivals.lives)


class Arrivals:
    """Turns by the time they arrive; sessions ask the next one when the last was answered."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.lives: list[float] = []
        self._heap: list[tuple[float, int, Turn]] = []
        self._numbers = itertools.count()
        self._waiting_sessions = iter(agent_sessions(setup.shape, setup.seed) if setup.trace == "agents" else ())
        self._rng = random.Random(f"{setup.seed} arrivals")

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else math.inf

    def begin(self, engine: SimEngine) -> None:
        shape = self.setup.shape
        if self.setup.trace == "agents":
            for _ in range(shape.at_once):
                self._next_session(self._rng.uniform(0, 2 * shape.tool_s))
            return
        contexts = warm_contexts(shape, self._rng)
        for tokens in contexts:
            engine.warm(tokens)
        for turn in open_trace(shape, self._rng, contexts):
            self._push(turn)

    def due(self, now: float) -> Iterable[Turn]:
        while self._heap and self._heap[0][0] <= now:
            yield heapq.heappop(self._heap)[2]

    def answered(self, record: Record) -> None:
        session = record.turn.session
        if session is None:
            return
        if session.over:
            self.lives.append(record.finished - session.began)
            self._next_session(record.finished + lognormal(self._rng, self.setup.shape.tool_s, 1.0))
        else:
            self._push(session.turn(record.finished + session.tool_time()))

    def _next_session(self, at: float) -> None:
        session = next(self._waiting_sessions, None)
        if session is not None:
            session.began = at
            self._push(session.turn(at))

    def _push(self, turn: Turn) -> None:
        heapq.heappush(self._heap, (turn.at, next(self._numbers), turn))


def _result(setup: Setup, figures: Figures, lives: list[float]) -> Result:
    records = figures.records
    prompt = sum(record.sequence.prompt_len for record in records)
    return Result(
        setup=setup,
        ttft=tuple(record.first_token - record.arrived for record in records),
        kinds=tuple(record.turn.kind for record in records),
        requests_per_s=len(records) / figures.now,
        hit_rate=sum(record.sequence.cached_tokens or 0 for record in records) / prompt,
        overtaken=most_overtaken(figures.admitted),
        preemptions=figures.preemptions,
        longest_gap=figures.longest_gap,
        step_cpu=tuple(figures.step_cpu),
        steps=figures.steps,
        sessions_s=tuple(lives),
    )


def most_overtaken(admitted: Sequence[int]) -> int:
    """Of ranks in order of admission: the greatest number of higher ranks before a rank."""
    seen: list[int] = []
    most = 0
    for rank in admitted:
        most = max(most, len(seen) - bisect_right(seen, rank))
        insort(seen, rank)
    return most
