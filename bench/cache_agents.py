"""(f) Agents that call tools, over pools smaller and larger than what they need, with and without pins."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass

from agentcache.cache.pins import Pin
from agentcache.cache.tokens import PagedTokens
from bench.cache_counts import Line, hits
from bench.free_engine import ROOT, Answer, FreeEngine, Shape, Tally, Texts


@dataclass(frozen=True)
class AgentSpec:
    """A thought-and-tool loop (Yao et al., "ReAct", 2023): prompt, reply, tool pause, longer prompt.

    Attributes:
        new_tokens: task at first, tool results then.
        pause_s: a tool takes a uniformly drawn time between these.
        pin_s: how long a pin keeps a transcript.
        visitors: one-shot prompts for each turn of an agent, spread evenly over the pauses; they share nothing.
    """

    agents: int = 8
    turns: int = 8
    system_tokens: int = 512
    new_tokens: int = 256
    output_tokens: int = 32
    pause_s: tuple[float, float] = (1.0, 30.0)
    pin_s: float = 60.0
    pins: bool = False
    visitors: int = 0
    visitor_tokens: int = 512

    def prompt_tokens(self, turn: int) -> int:
        """Length of the prompt of a turn, counted from 0."""
        return self.system_tokens + self.new_tokens + turn * (self.new_tokens + self.output_tokens)

    def live_pages(self, page_size: int) -> int:
        """What all transcripts take at the end, the system prompt once."""
        shared = self.system_tokens // page_size
        own = self.prompt_tokens(self.turns - 1) + self.output_tokens - shared * page_size
        return shared + self.agents * -(-own // page_size)

    def best(self) -> Tally:
        """With room for everything: the system prompt once, what is new once, and the last drawn token of each reply."""
        prompt = self.agents * sum(map(self.prompt_tokens, range(self.turns)))
        own = self.turns * self.new_tokens + (self.turns - 1)
        prefilled = self.system_tokens + self.agents * own
        return Tally(prompt, prompt - prefilled, prefilled)


class Agent:
    """One conversation, and the pin that keeps it while its tool runs."""

    def __init__(self, transcript: list[int]) -> None:
        self.transcript = transcript
        self.turns = 0
        self.waiting: Answer | None = None
        self.pin: Pin | None = None


class Simulation:
    """Agents and visitors in simulated time; the engine steps whenever it has work, and else time jumps to who is next."""

    def __init__(self, spec: AgentSpec, num_pages: int) -> None:
        self.spec = spec
        self.engine = FreeEngine(Shape(num_pages, token_budget=512))
        self.answers: list[Answer] = []
        self._texts = Texts()
        self._rng = random.Random(1)
        system = self._texts(spec.system_tokens)
        self._agents = [Agent(system.copy()) for _ in range(spec.agents)]
        self._due: list[tuple[float, int, Agent | None]] = []
        """When, a number that settles ties, and who: an agent whose tool is done, or ``None`` for a visitor."""
        self._numbers = 0

    def run(self) -> Tally:
        for agent in self._agents:
            self._later(0.0, agent)
        while self._due or self.engine.core.has_work:
            self._arrivals()
            if self.engine.core.has_work:
                self.engine.step()
                self._departures()
            else:
                self.engine.clock.advance(max(0.0, self._due[0][0] - self.engine.clock()))
        self.engine.run()
        return Tally.of(self.answers)

    def _later(self, after_s: float, who: Agent | None) -> None:
        self._numbers += 1
        heapq.heappush(self._due, (self.engine.clock() + after_s, self._numbers, who))

    def _arrivals(self) -> None:
        spec = self.spec
        while self._due and self._due[0][0] <= self.engine.clock():
            agent = heapq.heappop(self._due)[2]
            if agent is None:
                self.engine.send(self._texts(spec.visitor_tokens))
                continue
            agent.transcript += self._texts(spec.new_tokens)
            agent.waiting = self.engine.send(agent.transcript, spec.output_tokens)
            self.answers.append(agent.waiting)

    def _departures(self) -> None:
        for agent in self._agents:
            if agent.waiting is None or not agent.waiting.reports:
                continue
            agent.transcript += agent.waiting.tokens[0]
            agent.waiting = None
            agent.turns += 1
            over = agent.turns == self.spec.turns
            self._keep(agent, over=over)
            if over:
                continue
            pause = self._rng.uniform(*self.spec.pause_s)
            self._later(pause, agent)
            for number in range(self.spec.visitors):
                self._later(pause * (number + 1) / (self.spec.visitors + 1), None)

    def _keep(self, agent: Agent, *, over: bool) -> None:
        manager = self.engine.manager
        if agent.pin is not None:
            manager.pins.remove(agent.pin)
            agent.pin = None
        if self.spec.pins and not over:
            tokens = PagedTokens(agent.transcript, manager.page_size, ROOT)
            agent.pin = manager.pin(tokens, self.engine.clock() + self.spec.pin_s)


def agents(page_size: int = 16) -> Iterator[Line]:
    """Pools of half, once and twice the live set; alone and beside one-shot traffic; with and without pins."""
    for visitors in (0, 2):
        for factor in (0.5, 1.0, 2.0):
            for pins in (False, True):
                spec = AgentSpec(pins=pins, visitors=visitors)
                live = spec.live_pages(page_size)
                simulation = Simulation(spec, int(live * factor))
                tally = simulation.run()
                beside = f"beside {visitors} one-shots a turn" if visitors else "alone"
                case = f"pool {factor:g} x live set, {beside}, leases {'on' if pins else 'off'}"
                yield from hits("f", case, tally, spec.best())
