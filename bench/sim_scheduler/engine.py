"""The real scheduler and cache with a cost model in place of a model, in virtual time.

A step takes as long as the cost model says.  While nothing but decoding goes on, many steps are made at once; the scheduler
would have decided the same in each of them, because

* nobody arrives and nobody finishes in between,
* nobody waits, or every seat is taken,
* the pages that all of them need for these steps are free, and promised to nobody.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.request import Output, Request, SamplingParams, Sequence
from agentcache.scheduler.outlook import room
from agentcache.scheduler.plan import StepPlan
from agentcache.scheduler.policy import POLICIES
from agentcache.scheduler.scheduler import Limits, Scheduler
from bench.sim_scheduler.traces import ROOT, Texts, Turn


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds.  The defaults are of the order of a mid-sized model on a node of eight large GPUs."""

    step: float = 8e-3
    """Of any step."""
    row: float = 25e-6
    """Of each token that is run: projections and feed-forward."""
    pair: float = 3e-11
    """Of each token that a row of a prompt attends to."""
    read: float = 3e-9
    """Of each token whose keys and values a decode row reads."""

    def of(self, plan: StepPlan) -> float:
        pairs = reads = 0
        for chunk in plan.chunks:
            if chunk.count == 1:
                reads += chunk.end
            else:
                pairs += chunk.count * (chunk.start + chunk.end) // 2
        return self.step + plan.num_tokens * self.row + pairs * self.pair + reads * self.read

    def decode(self, rows: int, reads: int) -> float:
        """Of a step in which ``rows`` sequences decode that have ``reads`` tokens together."""
        return self.step + rows * self.row + reads * self.read


@dataclass(slots=True)
class Record:
    """What became of a turn.  Seconds of virtual time; ``overtaken`` as counted by the log of admissions."""

    turn: Turn
    sequence: Sequence
    arrived: float
    first_token: float = 0.0
    finished: float = 0.0


@dataclass(slots=True)
class Figures:
    """Of a run."""

    records: list[Record] = field(default_factory=list)
    step_cpu: list[float] = field(default_factory=list)
    """Seconds of this process' time that planning and committing took, a step."""
    admitted: list[int] = field(default_factory=list)
    """Ranks in order of first admission."""
    steps: int = 0
    """Of which ``len(step_cpu)`` were made one by one."""
    now: float = 0.0
    preemptions: int = 0
    longest_gap: float = 0.0
    """The longest step in which somebody decoded."""


class SimEngine:
    """Args:
    limits: of the scheduler.
    policy: a key of ``POLICIES``.
    finished: told of each turn when its last token was drawn.
    """

    def __init__(
        self, num_pages: int, page_size: int, limits: Limits, policy: str, finished: Callable[[Record], None]
    ) -> None:
        self.manager = CacheManager(num_pages, page_size)
        self.scheduler = Scheduler(self.manager, limits, POLICIES[policy])
        self.costs = CostModel()
        self.figures = Figures()
        self._finished = finished
        self._records: dict[Sequence, Record] = {}
        self._texts = Texts(random.Random(0))
        admit = self.scheduler.waiting.admit

        def log(sequence: Sequence) -> None:
            self.figures.admitted.append(sequence.rank)
            admit(sequence)

        self.scheduler.waiting.admit = log  # type: ignore[method-assign]

    def warm(self, tokens: PagedTokens) -> None:
        """Have ``tokens`` cached, at no cost."""
        lease = self.manager.acquire(tokens)
        assert isinstance(lease, Lease), lease
        lease.take_copies()
        lease.commit(len(tokens))
        lease.release()

    def submit(self, turn: Turn, *, programs: bool = True) -> None:
        request = Request(
            str(len(self.figures.records)), [], SamplingParams(max_tokens=turn.draws), ROOT, _nobody,
            program=turn.program if programs else None,
        )  # fmt: skip
        sequence = Sequence(request, 0, turn.prompt, len(turn.prompt), turn.draws, seed=0)
        request.sequences = [sequence]
        self.scheduler.add(request)
        record = Record(turn, sequence, turn.at)
        self._records[sequence] = record
        self.figures.records.append(record)

    def step(self, next_arrival: Callable[[], float]) -> bool:
        """Make one step, or several equal ones up to the next arrival; ``False`` when nothing can run."""
        began = time.thread_time()
        plan = self.scheduler.plan()
        planned = time.thread_time()
        assert not plan.failed, plan.failed
        if not plan.chunks:
            return False
        duration = self.costs.of(plan)
        self.figures.now += duration
        committing = time.thread_time()
        self.scheduler.commit(plan)
        self.figures.step_cpu.append(planned - began + time.thread_time() - committing)
        self.figures.steps += 1
        self.figures.preemptions = self.scheduler.num_preemptions
        sequences = [sequence for chunk in plan.chunks for sequence in chunk.samples]
        for sequence, token in zip(sequences, self._texts(len(sequences)), strict=True):
            sequence.tokens.append(token)
        only_decodes = plan.num_tokens == len(sequences)
        if any(chunk.start >= chunk.sequence.prompt_len for chunk in plan.chunks):
            self.figures.longest_gap = max(self.figures.longest_gap, duration)
        self._note(sequences)
        if only_decodes:
            self._decode_on(next_arrival())  # whoever just finished may have brought it forward
        return True

    def _note(self, sequences: list[Sequence]) -> None:
        """Who has drawn its first or its last token."""
        for sequence in sequences:
            record = self._records[sequence]
            if not record.first_token:
                record.first_token = self.figures.now
            if sequence.output_len >= sequence.max_tokens:
                record.finished = self.figures.now
                self.scheduler.finish(sequence)
                del self._records[sequence]
                self._finished(record)

    def _decode_on(self, until: float) -> None:
        """Make more steps like the last one, as many as the scheduler would certainly make like it."""
        running, scheduler = self.scheduler.running, self.scheduler
        idle = not (scheduler.waiting or scheduler.preempted)
        if not running or not (idle or len(running) >= scheduler.limits.max_running):
            return
        if any(sequence.output_len == 0 or sequence.secured for sequence in running):
            return
        most = min(sequence.max_tokens - sequence.output_len for sequence in running) - 1
        most = min(most, room(self.manager) * self.manager.page_size // len(running) - self.manager.page_size)
        reads = sum(len(sequence.tokens) for sequence in running)
        count = 0
        while count < most and self.figures.now < until:
            self.figures.now += self.costs.decode(len(running), reads)
            reads += len(running)
            count += 1
        if not count:
            return
        for sequence in running:
            lease = sequence.lease
            assert lease is not None
            sequence.tokens.extend(self._texts(count))
            if not lease.extend(len(sequence.tokens)):
                raise AssertionError("room was counted before")
            lease.commit(len(sequence.tokens) - 1, output_from=sequence.prompt_len)
            sequence.computed_tokens += count
        scheduler.processed += count * len(running)
        self.figures.steps += count


def _nobody(_: Output) -> None:
    """Outputs are read off the sequences."""
