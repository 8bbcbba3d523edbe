"""Engines for tests of the scheduler: the replay model, any policy, and a log of who was admitted in which order."""

from __future__ import annotations

import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from replay import VOCAB, Collected, PlainText, ReplayRunner, make_request

from agentcache.cache.manager import CacheManager
from agentcache.engine.bounds import Bounds
from agentcache.engine.core import EngineCore
from agentcache.request import Request
from agentcache.scheduler.policy import POLICIES
from agentcache.scheduler.scheduler import Limits, Scheduler


@dataclass
class World:
    """One engine and what happened in it."""

    engine: EngineCore
    arrived: dict[int, Request] = field(default_factory=dict)
    """By rank."""
    admitted: list[int] = field(default_factory=list)
    """Ranks, in order of first admission."""
    left: dict[int, int] = field(default_factory=dict)
    """Rank of a request that ended while it waited: how many had been admitted by then."""
    steps: int = 0

    @property
    def scheduler(self) -> Scheduler:
        return self.engine.scheduler

    def ask(self, name: str, prompt: Seq[int], *, program: str | None = None, **options) -> Collected:
        request, sink = make_request(name, prompt, **options)
        request.program = program
        self.engine.add(request)
        self.arrived[request.sequences[0].rank] = request
        return sink

    def step(self) -> bool:
        moved = self.engine.step()
        self.steps += 1
        assert self.engine.check() == []
        return moved

    def run(self, limit: int = 5000) -> None:
        for _ in range(limit):
            if not self.engine.has_work:
                return
            self.step()
        raise AssertionError("the engine does not come to an end")

    def overtaken(self) -> dict[int, int]:
        """How often each request was overtaken, counted from the log of admissions alone."""
        place = {rank: index for index, rank in enumerate(self.admitted)}
        counts = {}
        for rank, request in self.arrived.items():
            until = place.get(rank, self.left.get(rank, len(self.admitted)))
            counts[rank] = sum(
                other > rank and self.arrived[other].priority == request.priority for other in self.admitted[:until]
            )
        return counts

    def drained(self) -> bool:
        counts = self.engine.manager.counts()
        self.engine.manager.flush()
        return counts.live == 0 and self.engine.manager.counts().free == counts.total


def make_world(
    pages: int = 64, size: int = 4, budget: int = 16, running: int = 2, *, policy: str = "hrrn", **limits
) -> World:
    manager = CacheManager(pages, size)
    scheduler = Scheduler(manager, Limits(budget, running, **({"max_waiting": 1000} | limits)), POLICIES[policy])
    bounds = Bounds(4096, min(4096, pages * size), VOCAB, running)
    engine = EngineCore(
        scheduler, ReplayRunner(pages, size), PlainText, frozenset(), bounds, faults=manager.faults,
        seeds=random.Random(0),
    )  # fmt: skip
    world = World(engine)
    admit, withdraw = scheduler.waiting.admit, scheduler.waiting.withdraw

    def log_admit(sequence):
        world.admitted.append(sequence.rank)
        admit(sequence)

    def log_withdraw(sequence):
        world.left[sequence.rank] = len(world.admitted)
        withdraw(sequence)

    scheduler.waiting.admit, scheduler.waiting.withdraw = log_admit, log_withdraw
    return world


def prompt_of(length: int, seed: int | str = 0) -> list[int]:
    rng = random.Random(f"{seed}/{length}")
    return [rng.randrange(VOCAB) for _ in range(length)]
