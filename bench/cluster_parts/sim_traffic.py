"""Who asks what, when: agents with system prompts in common, tools that take a while, and transcripts that grow."""

from __future__ import annotations

import random
from dataclasses import dataclass

from agentcache.cache.tokens import PagedTokens
from bench.sim_scheduler.traces import ROOT, AgentSession, Texts, TraceShape, lognormal


@dataclass(frozen=True, slots=True)
class Traffic:
    """Tokens and seconds; lengths and times are means.

    Attributes:
        sessions: agents in all; ``at_once`` of them are alive at the same time.
        kinds: different system prompts, of ``shared`` tokens each; the first is as common as all others together.
        hot_from: session from which on every other agent has one more system prompt that nobody had before.
    """

    sessions: int = 640
    at_once: int = 512
    kinds: int = 6
    shared: int = 3_000
    appended: int = 700
    generated: int = 120
    turns: int = 8
    tool_s: float = 6.0
    page_size: int = 64
    hot_from: int | None = None
    hot_tokens: int = 6_000
    seed: int = 1


class Agent(AgentSession):
    """One agent, and which replica had its last turn."""

    def __init__(self, name: str, shape: TraceShape, seed: str, shared: PagedTokens) -> None:
        super().__init__(name, shape, seed, shared)
        self.place: str | None = None
        self.hot = False
        """Whether its system prompt is the new one."""
        self.first_pages = len(self.tokens) // shape.page_size
        """Pages of its first prompt, before anything was generated."""


def agents_of(traffic: Traffic) -> list[Agent]:
    """All agents, in the order in which they begin."""
    shape = TraceShape(
        context=10**9,
        appended=traffic.appended,
        generated=traffic.generated,
        page_size=traffic.page_size,
        steps=traffic.turns,
        tool_s=traffic.tool_s,
    )
    rng = random.Random(f"{traffic.seed} kinds")
    prompts = [_prompt(rng, traffic.shared, traffic.page_size) for _ in range(traffic.kinds)]
    hot = _prompt(rng, traffic.hot_tokens, traffic.page_size)
    weights = [traffic.kinds - 1 or 1] + [1] * (traffic.kinds - 1)
    agents = []
    for number in range(traffic.sessions):
        (prompt,) = rng.choices(prompts, weights)
        is_hot = traffic.hot_from is not None and number >= traffic.hot_from and number % 2 == 1
        agent = Agent(f"agent {number}", shape, f"{traffic.seed} {number}", hot if is_hot else prompt)
        agent.hot = is_hot
        agents.append(agent)
    return agents


def _prompt(rng: random.Random, tokens: int, page_size: int) -> PagedTokens:
    length = max(page_size, int(lognormal(rng, tokens, 0.3)))
    paged = PagedTokens(Texts(rng)(length), page_size, ROOT)
    paged.keys(paged.num_full_pages)  # computed once, copied with the tokens
    return paged
