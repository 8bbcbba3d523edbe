"""Traffic against replicas, in virtual time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.cluster_parts.sim_placement import Placement
from bench.cluster_parts.sim_replica import Job, SimReplica, Size, Speed
from bench.cluster_parts.sim_traffic import Agent, Traffic, agents_of
from bench.sim_scheduler.runs import nearest


@dataclass(frozen=True, slots=True)
class Cluster:
    """``pages`` of each replica."""

    replicas: int = 64
    pages: int = 820
    speed: Speed = field(default_factory=Speed)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True)
class Turned:
    """One turn that was served."""

    at: float
    ttft: float
    prompt: int
    cached: int
    replica: str
    agent: str
    hot: bool


@dataclass(slots=True)
class Outcome:
    turns: list[Turned] = field(default_factory=list)
    retried: int = 0
    """Turns whose replica died, and that were sent again."""
    work: Counter[str] = field(default_factory=Counter)
    """Prompt tokens that each replica computed."""

    def hit_rate(self, begin: float = 0.0, end: float = float("inf")) -> float:
        turns = [turn for turn in self.turns if begin <= turn.at < end]
        prompt = sum(turn.prompt for turn in turns)
        return sum(turn.cached for turn in turns) / prompt if prompt else 0.0

    def ttft(self, percent: float, begin: float = 0.0, end: float = float("inf")) -> float:
        return nearest([turn.ttft for turn in self.turns if begin <= turn.at < end], percent)


class Simulation:
    """Args:
    placement: told of every replica that comes and goes.
    """

    def __init__(self, cluster: Cluster, traffic: Traffic, make_placement: Callable[[Clock], Placement]) -> None:
        self.clock = Clock()
        self.cluster = cluster
        self.traffic = traffic
        self.outcome = Outcome()
        self.placement = make_placement(self.clock)
        self.replicas: dict[str, SimReplica] = {}
        self.alive: dict[str, Agent] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._waiting = iter(agents_of(traffic))
        self._rng = random.Random(f"{traffic.seed} arrivals")
        for number in range(cluster.replicas):
            self.join(f"r{number}")

    def later(self, at: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (at, next(self._numbers), call))

    def run(self) -> Outcome:
        """Until every agent is done."""
        for agent in itertools.islice(self._waiting, self.traffic.at_once):
            self._begin(agent, self._rng.uniform(0, self.traffic.tool_s * self.traffic.turns))
        while self._heap:
            self.clock.now, _, call = heapq.heappop(self._heap)
            call()
        if self.alive:
            raise RuntimeError(f"{len(self.alive)} agents still wait, and nothing happens any more")
        return self.outcome

    # -- replicas ---------------------------------------------------------------------------------------------------

    def join(self, name: str) -> None:
        cluster = self.cluster
        size = Size(cluster.pages, self.traffic.page_size, cluster.speed)
        replica = SimReplica(name, size, self.clock, self.later)
        self.replicas[name] = replica
        self.outcome.work[name] += 0
        self.placement.join(replica)

    def leave(self, name: str) -> None:
        """It gets nothing more, and finishes what it has."""
        self.placement.leave(self.replicas[name], dead=False)

    def kill(self, name: str) -> None:
        replica = self.replicas.pop(name)
        self.placement.leave(replica, dead=True)
        replica.die()

    # -- agents -----------------------------------------------------------------------------------------------------

    def _begin(self, agent: Agent, at: float) -> None:
        agent.began = at
        self.alive[agent.name] = agent
        self.later(at, lambda: self._ask(agent, agent.turn(at).draws))

    def _ask(self, agent: Agent, draws: int) -> None:
        name, token = self.placement.place(agent)
        if agent.place != name:
            agent.tokens.trail = None  # it is of another tree
            agent.place = name
        prompt = len(agent.tokens)

        def done(served: bool) -> None:
            token.ended(served)
            if not served:
                self.outcome.retried += 1
                agent.tokens.trail = None
                self._ask(agent, draws)
                return
            self.outcome.work[name] += prompt - job.cached
            turned = Turned(
                job.sent_at, job.first_token_at - job.sent_at, prompt, job.cached, name, agent.name, agent.hot
            )
            self.outcome.turns.append(turned)
            self._answered(agent)

        job = Job(agent.tokens, draws, self.clock.now, lambda at: token.started(), done)
        self.replicas[name].submit(job)

    def _answered(self, agent: Agent) -> None:
        if not agent.over:
            at = self.clock.now + agent.tool_time()
            self.later(at, lambda: self._ask(agent, agent.turn(at).draws))
            return
        del self.alive[agent.name]
        following = next(self._waiting, None)
        if following is not None:
            self._begin(following, self.clock.now)
