"""What is asked, when: synthetic traffic of agents, from a seed.

Two traces:

* ``open``: requests that arrive whatever happens (Poisson).  Nine of ten continue one of a set of long contexts that are in
  the cache; one of ten has a prompt of its own that is not.
* ``agents``: sessions that send a turn, wait for its reply, run a tool, and send the next one.  Contexts grow by what tools
  say and what was replied, and are compacted to a summary when they become too long.

Lengths of tokens are drawn from lognormal distributions (many short, some long), tool times from one with a heavier tail.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from agentcache.cache.hashing import namespace_root
from agentcache.cache.tokens import PagedTokens

ROOT = namespace_root("simulation")


@dataclass(frozen=True, slots=True)
class TraceShape:
    """Means in tokens and seconds."""

    context: int = 154_000
    appended: int = 6_400
    generated: int = 500
    page_size: int = 64
    # open
    requests: int = 1_200
    rate: float = 1.9
    """Arrivals a second."""
    cold_share: float = 0.1
    cold: int = 30_000
    contexts: int = 48
    # agents
    sessions: int = 60
    at_once: int = 60
    """Sessions that are alive at the same time."""
    steps: int = 30
    shared: int = 8_000
    """System prompt and tools, the same in every session."""
    tool_s: float = 5.0


@dataclass(slots=True)
class Turn:
    """One request: its prompt, how many tokens it draws, and what it belongs to."""

    at: float
    prompt: PagedTokens
    draws: int
    kind: str
    session: AgentSession | None = None

    @property
    def program(self) -> str | None:
        return None if self.session is None else self.session.name


class Texts:
    """Token ids that nobody else has."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def __call__(self, length: int) -> array[int]:
        ids: array[int] = array("I")
        ids.frombytes(self._rng.randbytes(4 * length))
        return ids


def lognormal(rng: random.Random, mean: float, sigma: float) -> float:
    """A draw from the lognormal distribution of that mean; ``sigma`` is the deviation of the logarithm."""
    return rng.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)


def tokens_of(rng: random.Random, mean: int, sigma: float = 0.8, most: int | None = None) -> int:
    """At least 16, at most eight times the mean."""
    return max(16, min(int(lognormal(rng, mean, sigma)), 8 * mean if most is None else most))


def warm_contexts(shape: TraceShape, rng: random.Random) -> list[PagedTokens]:
    """What is cached when the open trace begins."""
    texts = Texts(rng)
    lengths = [tokens_of(rng, shape.context, 0.4, 2 * shape.context) for _ in range(shape.contexts)]
    return [PagedTokens(texts(length), shape.page_size, ROOT) for length in lengths]


def open_trace(shape: TraceShape, rng: random.Random, contexts: list[PagedTokens]) -> Iterator[Turn]:
    """In order of arrival."""
    texts, now = Texts(rng), 0.0
    for _ in range(shape.requests):
        now += rng.expovariate(shape.rate)
        draws = tokens_of(rng, shape.generated, 0.6)
        if rng.random() < shape.cold_share:
            prompt = PagedTokens(texts(tokens_of(rng, shape.cold, 1.0, 2 * shape.context)), shape.page_size, ROOT)
            yield Turn(now, prompt, draws, "cold")
        else:
            prompt = rng.choice(contexts).copy()
            prompt.extend(texts(tokens_of(rng, shape.appended)))
            yield Turn(now, prompt, draws, "warm")


class AgentSession:
    """One agent's life.  ``tokens`` is its transcript; the engine appends what it draws."""

    def __init__(self, name: str, shape: TraceShape, seed: str, shared: PagedTokens) -> None:
        self.name = name
        self.shape = shape
        self.rng = random.Random(seed)
        self.texts = Texts(self.rng)
        self.shared = shared
        self.steps = 0
        self.began = 0.0
        self.tokens = shared.copy()
        self.tokens.extend(self.texts(tokens_of(self.rng, shape.appended)))

    def turn(self, at: float) -> Turn:
        """The next request; asked for once the one before was answered."""
        kind = "warm" if self.steps else "first"
        if self.steps:
            self.tokens.extend(self.texts(tokens_of(self.rng, self.shape.appended)))
        if len(self.tokens) > 2 * self.shape.context:  # compacted: what follows is new to the cache
            self.tokens = self.shared.copy()
            self.tokens.extend(self.texts(tokens_of(self.rng, self.shape.context // 8)))
            kind = "compacted"
        self.steps += 1
        return Turn(at, self.tokens, tokens_of(self.rng, self.shape.generated, 0.6), kind, self)

    @property
    def over(self) -> bool:
        return self.steps >= self.shape.steps

    def tool_time(self) -> float:
        """Seconds until the next turn: mostly a few, at times minutes."""
        return min(lognormal(self.rng, self.shape.tool_s, 1.5), 60 * self.shape.tool_s)


def agent_sessions(shape: TraceShape, seed: int) -> list[AgentSession]:
    shared = PagedTokens(Texts(random.Random(f"{seed} shared"))(shape.shared), shape.page_size, ROOT)
    shared.keys(shared.num_full_pages)  # computed once, copied with the tokens
    return [AgentSession(f"s{n}", shape, f"{seed} {n}", shared) for n in range(shape.sessions)]
