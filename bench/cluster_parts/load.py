"""Agents that all ask at once, and what became of each request.

::

    team 0   [ its system prompt ][ agent 0: task, source ][ reply ][ source ][ reply ] …
             [ the same ......... ][ agent 1: ......       ][ reply ] …
    team 1   [ another .......... ][ …
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.report import percentile
from bench.workload import Message, Workload, WorkloadSpec, build_workload

Told = Callable[[], None]
"""Called when a request is over."""
SERVED = "served"
CUT = "ended by an error event"
BROKEN = "broken off without a word"


@dataclass(frozen=True)
class LoadSpec:
    """``output_tokens`` of each reply; other sizes as ``WorkloadSpec`` has them, estimated.

    ``tool_s``: seconds that an agent's tool takes between two turns, on average; each takes half as long or half as long again.
    """

    teams: int = 6
    agents: int = 2
    turns: int = 4
    shared_tokens: int = 800
    new_tokens: int = 100
    output_tokens: int = 12
    tool_s: float = 4.0
    seed: int = 0

    @property
    def requests(self) -> int:
        return self.teams * self.agents * self.turns


@dataclass(frozen=True)
class Outcome:
    """One request.

    Attributes:
        how: ``SERVED``, ``CUT``, ``BROKEN``, or what was answered in place of a stream, as text.
        ttft: seconds to the first piece of text; ``None`` where none came.
        prompt, cached, tiers: tokens, as the answer has them; ``tiers`` by where they were found.
        again: it was sent once more after it had been cut.
    """

    agent: str
    how: str
    replica: str
    ttft: float | None = None
    prompt: int = 0
    cached: int = 0
    tiers: dict[str, int] = field(default_factory=dict)
    again: bool = False


@dataclass(frozen=True)
class Tally:
    outcomes: tuple[Outcome, ...]

    @property
    def served(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.how == SERVED]

    @property
    def unserved(self) -> int:
        return len(self.outcomes) - len(self.served)

    @property
    def hit_rate(self) -> float:
        prompt = sum(outcome.prompt for outcome in self.served)
        return sum(outcome.cached for outcome in self.served) / prompt if prompt else 0.0

    @property
    def hows(self) -> Counter[str]:
        return Counter(outcome.how for outcome in self.outcomes)

    @property
    def replicas(self) -> Counter[str]:
        return Counter(outcome.replica for outcome in self.served)

    def ttft(self, percent: float) -> float:
        return percentile([o.ttft for o in self.served if o.ttft is not None], percent) or 0.0

    def in_tier(self, name: str) -> int:
        return sum(outcome.tiers.get(name, 0) for outcome in self.served)


def texts(spec: LoadSpec) -> Workload:
    """What all agents are told; agent ``a`` of team ``t`` has number ``t * spec.agents + a``."""
    return build_workload(
        WorkloadSpec(
            agents=spec.teams * spec.agents,
            turns=spec.turns,
            shared_tokens=spec.shared_tokens,
            new_tokens=spec.new_tokens,
            output_tokens=spec.output_tokens,
            seed=spec.seed,
        )
    )


def system_of(spec: LoadSpec, workload: Workload, team: int) -> Message:
    """Teams part in their first page."""
    return {"role": "system", "content": f"Team {spec.seed}.{team} of many. {workload.system}"}


class Client:
    """Asks one address after the other (or the only one), as a balancer that knows nothing would do it."""

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[str], model: str, told: Told = lambda: None) -> None:
        self.http = http
        self.outcomes: list[Outcome] = []
        self._urls = itertools.cycle(urls)
        self._model = model
        self._told = told

    @property
    def tally(self) -> Tally:
        """Of all requests so far."""
        return Tally(tuple(self.outcomes))

    def url(self) -> str:
        """Whose turn it is."""
        return next(self._urls)

    async def ask(self, agent: str, body: dict[str, Any], *, again: bool = False) -> tuple[Outcome, str]:
        """One streamed request, greedy and to its full length; returns how it went, and its text."""
        body = {"model": self._model, "temperature": 0, "ignore_eos": True, "stream": True, **body}
        body["stream_options"] = {"include_usage": True}
        began = time.perf_counter()
        text, replica, how = "", "", BROKEN
        first: float | None = None
        report: dict[str, Any] = {}
        try:
            async with self.http.stream("POST", f"{self.url()}/v1/chat/completions", json=body) as reply:
                replica = reply.headers.get("x-agentcache-replica", "?")
                if not reply.is_success:
                    how = f"{reply.status_code}: {_sentence(await reply.aread())}"
                async for event in _events(reply):
                    if event is None:
                        how = SERVED
                    elif "error" in event:
                        how = CUT
                        break
                    else:
                        report = event.get("agentcache") or report
                        for choice in event.get("choices") or ():
                            if piece := choice["delta"].get("content"):
                                first = first or time.perf_counter()
                                text += piece
        except httpx.HTTPError as error:
            how = BROKEN if first else f"{type(error).__name__} before the first byte"
        outcome = Outcome(
            agent, how, replica, None if first is None else first - began,
            report.get("prompt_tokens", 0), report.get("cached_tokens", 0), report.get("tiers", {}), again,
        )  # fmt: skip
        self.outcomes.append(outcome)
        self._told()
        return outcome, text


async def _events(reply: httpx.Response) -> Any:
    """Each event of a stream; ``None`` for its proper end."""
    if not reply.is_success:
        return
    async for line in reply.aiter_lines():
        if line == "data: [DONE]":
            yield None
        elif line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def _sentence(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"]["message"])[:80]
    except (ValueError, KeyError, TypeError):
        return answer[:80].decode("utf-8", "replace")


async def run_agents(client: Client, spec: LoadSpec, *, retry: bool = False) -> None:
    """Every agent sends its whole history each turn.

    Args:
        retry: a turn that was not served is sent once more; without it, its agent is over.
    """
    workload = texts(spec)

    async def live(team: int, number: int) -> None:
        agent = f"{spec.seed}.{team}.{number}"
        rng = random.Random(f"{agent} waits")
        messages: list[Message] = [system_of(spec, workload, team)]
        for turn in range(spec.turns):
            await asyncio.sleep(spec.tool_s * rng.uniform(0.5, 1.5))
            messages.append(workload.user_message(team * spec.agents + number, turn))
            body = {"messages": messages, "max_tokens": spec.output_tokens}
            outcome, text = await client.ask(agent, body)
            if outcome.how != SERVED and retry:
                outcome, text = await client.ask(agent, body, again=True)
            if outcome.how != SERVED:
                return
            messages.append({"role": "assistant", "content": text})

    await asyncio.gather(*(live(team, number) for team in range(spec.teams) for number in range(spec.agents)))


async def run_sessions(client: Client, spec: LoadSpec, sessions: Sequence[str], turns: Iterable[int]) -> None:
    """One session an agent; ``turns`` of each, one after the other, all sessions at once.  What is not served is sent again."""
    workload = texts(spec)
    turns = list(turns)

    async def live(number: int, session: str) -> None:
        for turn in turns:
            message = workload.user_message(number % (spec.teams * spec.agents), turn % spec.turns)
            name = {"session": session, "turn_id": f"bench.{turn}"}
            body = {"messages": [message], "max_tokens": spec.output_tokens, **name}
            outcome, _ = await client.ask(session, body)
            if outcome.how != SERVED:
                await client.ask(session, body, again=True)

    await asyncio.gather(*(live(number, session) for number, session in enumerate(sessions)))


async def open_sessions(client: Client, spec: LoadSpec, count: int) -> list[str]:
    workload = texts(spec)
    made = []
    for number in range(count):
        body = {"messages": [system_of(spec, workload, number % spec.teams)]}
        reply = await client.http.post(f"{client.url()}/v1/sessions", json=body)
        made.append(reply.raise_for_status().json()["id"])
    return made


async def first_model(http: httpx.AsyncClient, url: str) -> str:
    reply = await http.get(f"{url}/v1/models")
    return str(reply.raise_for_status().json()["data"][0]["id"])
