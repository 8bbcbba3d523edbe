"""Three agents wait for a slow tool while strangers fill a small cache: what a lease is for.

    python examples/agents/long_tool_wait.py

::

    waiting    turn  [ waiting("run_tests"): its pages stay ............. ]  turn: cached
    no lease   turn  [ nothing was said: its pages make room for strangers ]  turn: computed again, AC801
    lapsed     turn  [ pin("1s") ][ the lease has ended: as without one .. ]  turn: computed again, AC802
    strangers              [ request ][ request ][ request ][ request ]            all of them are served

A lease is a hint inside a budget of half the cache.  It never keeps another request from being served.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import warnings
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

# Run as a file, Python puts this folder on its path, not the top of the checkout.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from agentcache_sdk import AsyncClient, AsyncSession, CacheWarning, Turn
from examples.agents.common import connected_async, example_parser, named, run_example

PAGES = 64
"""Of the cache: far fewer than a server usually has, so that it is full within seconds."""
MOST_PAGES = 512
"""Of a cache that an example can fill."""
SYSTEM = "You watch over builds. Run the tests, and say in one sentence what failed and what you would try next."
EXPECT_S = 60.0


@dataclass(frozen=True)
class Agent:
    """One of the three, and in words what keeps its pages while its tool runs."""

    name: str
    lease: str
    session: AsyncSession


@dataclass(frozen=True)
class Outcome:
    """An agent's turn behind its tool, and the warnings about what of it was not cached."""

    agent: Agent
    turn: Turn
    warnings: tuple[CacheWarning, ...]


@dataclass(frozen=True)
class Served:
    """A stranger's request: its prompt in tokens, and the seconds that it took."""

    tokens: int
    took_s: float


def run_tests() -> str:
    """Run the test suite and say which tests failed."""
    return "118 passed, 2 failed: test_a_lease_is_kept, test_the_budget_holds"


async def stranger(client: AsyncClient, number: int) -> Served:
    """A request that has nothing in common with any other."""
    began = time.perf_counter()
    turn = await client.complete(f"{number} is a number. " * 30, max_tokens=1, temperature=0)
    return Served(turn.usage.prompt_tokens, time.perf_counter() - began)


async def strangers(client: AsyncClient, tokens: int) -> list[Served]:
    """Requests of strangers, two at a time, until they were so many tokens in all."""
    served: list[Served] = []
    while sum(one.tokens for one in served) < tokens:
        number = 1000 + len(served)
        served += await asyncio.gather(stranger(client, number), stranger(client, number + 1))
    return served


async def wait_for_the_tool(
    client: AsyncClient, agents: list[Agent], max_tokens: int
) -> tuple[list[Outcome], list[Served]]:
    """A turn of each agent that calls the tool, the tool, and a turn of each with its result."""
    waiting, _, lapsed = (agent.session for agent in agents)
    cache = await client.cache()
    if cache.total > MOST_PAGES:
        raise ValueError(
            f"the cache has {cache.total:,} pages: start the server with --num-pages {PAGES}, or omit --url"
        )
    for agent in agents:
        # What an agent read is its own: what agents share, such as the system text, is kept by the lease of any of them.
        log = "".join(f"{agent.name}, step {step}: compiled, linked.\n" for step in range(16))
        await agent.session.send(f"{log}Is the build good?", temperature=0, **named("run_tests"))
    await lapsed.pin(ttl="1s")
    await asyncio.sleep(1.5)
    async with waiting.waiting("run_tests", expect_s=EXPECT_S):
        # The tool is slow: meanwhile the server computes half as much again as its cache can hold, for others.
        served = await strangers(client, cache.total * (cache.page_size or 16) * 3 // 2)
        result = run_tests()
    return [await tell(agent, result, max_tokens) for agent in agents], served


async def tell(agent: Agent, result: str, max_tokens: int) -> Outcome:
    """The turn that answers the agent's call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        agent.session.tool_result(agent.session.messages[-1]["tool_calls"][0]["id"], result)
        turn = await agent.session.send(max_tokens=max_tokens, tool_choice="none", temperature=0)
    about = [warning.message for warning in caught]
    return Outcome(agent, turn, tuple(message for message in about if isinstance(message, CacheWarning)))


def outcome_table(outcomes: list[Outcome]) -> Table:
    """One line an agent: what of its turn was still cached, in tokens, and why not more."""
    table = Table(title="The turn after the tool", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("agent", no_wrap=True)
    table.add_column("lease")
    for heading in ("sent", "cached", "computed"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("why", no_wrap=True)
    for outcome in outcomes:
        turn = outcome.turn
        figures = (turn.usage.prompt_tokens, turn.usage.cached_tokens, turn.cache.computed_tokens or 0)
        codes = ", ".join(warning.finding.code for warning in outcome.warnings)
        why = f"{codes} {turn.cache.miss.code}" if codes and turn.cache.miss else ""
        table.add_row(outcome.agent.name, outcome.agent.lease, *(f"{figure:,}" for figure in figures), why)
    return table


async def show(args: argparse.Namespace, console: Console) -> None:
    async with connected_async(args, console, num_pages=PAGES) as client, AsyncExitStack() as open_sessions:
        leases = {
            "waiting": f"waiting, {EXPECT_S:.0f} s",
            "no lease": "none",
            "lapsed": "pin, 1 s",
        }
        agents = []
        for name, lease in leases.items():
            session = client.session(system=SYSTEM, tools=[run_tests])
            agents.append(Agent(name, lease, await open_sessions.enter_async_context(session)))
        with console.status("three agents wait for their tool"):
            outcomes, served = await wait_for_the_tool(client, agents, args.max_tokens)
        health = await client.health()

    console.print(outcome_table(outcomes))
    slowest = max(one.took_s for one in served)
    tokens = sum(one.tokens for one in served)
    console.print(
        f"Meanwhile {len(served)} strangers were served, {tokens:,} tokens, the slowest in {slowest:.1f} s;", end=""
    )
    console.print(f" the server is {health.status}.\n")
    for outcome in outcomes:
        for warning in outcome.warnings:
            console.print(f"{outcome.agent.name}: {warning}\n", style="yellow", markup=False, highlight=False)
    for agent in agents:
        console.print(agent.name, style="bold")
        console.print(agent.session.report())


def main(argv: list[str] | None = None) -> int:
    """Exit status: see ``run_example``; 2 for a bad command line."""
    parser = example_parser("What a lease keeps while a tool runs and others fill the cache.", max_tokens=16)
    return run_example(
        "long_tool_wait", lambda args, console: asyncio.run(show(args, console)), parser.parse_args(argv)
    )


if __name__ == "__main__":
    sys.exit(main())
