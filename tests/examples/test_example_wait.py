"""What a lease keeps while strangers fill a small cache, against a server with a tiny random model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import LiveServer, drain, live_server

from agentcache_sdk import AsyncClient
from examples.agents import long_tool_wait as example

# The cache is emptied between tests, which the library tells; what the example itself is told is recorded by it.
pytestmark = pytest.mark.filterwarnings("ignore::agentcache_sdk.CacheWarning")


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[LiveServer]:
    with live_server(tiny_model, num_pages=160) as server:
        yield server


async def outcomes_on(url: str) -> tuple[list[example.Outcome], list[example.Served]]:
    async with AsyncClient(url) as client:
        agents = [
            example.Agent(name, "", client.session(system=example.SYSTEM, tools=[example.run_tests]))
            for name in ("waiting", "no lease", "lapsed")
        ]
        try:
            return await example.wait_for_the_tool(client, agents, 12)
        finally:
            for agent in agents:
                await agent.session.close()


def test_only_the_lease_keeps_the_pages_and_every_stranger_is_served(server: LiveServer) -> None:
    outcomes, served = asyncio.run(outcomes_on(server.url))
    waiting, no_lease, lapsed = outcomes
    total = server.pages()["total"]
    assert sum(one.tokens for one in served) >= total * 16 * 3 // 2
    first = waiting.agent.session.report().rows[0]
    assert waiting.turn.usage.cached_tokens >= first.sent, "its first turn is cached as a whole"
    assert not waiting.warnings
    for outcome, miss, code in ((no_lease, "evicted", "AC801"), (lapsed, "expired", "AC802")):
        assert outcome.turn.cache.miss is not None
        assert outcome.turn.cache.miss.code == miss
        assert [warning.finding.code for warning in outcome.warnings] == [code]
        assert outcome.agent.session.report().rows[1].lost > 64
        assert outcome.turn.usage.cached_tokens < waiting.turn.usage.cached_tokens
    drain(server)


def test_the_command_prints_the_table_the_warnings_and_the_reports(
    server: LiveServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example.main(["--url", server.url, "--max-tokens", "4"]) == 0
    printed = capsys.readouterr().out
    assert "AC801 evicted" in printed
    assert "AC802 expired" in printed
    assert "the server is ok" in printed
    assert printed.count("tokens per turn") == 3
    drain(server)


def test_a_large_cache_is_refused_with_a_sentence(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with live_server(tiny_model, num_pages=1000) as large:
        assert example.main(["--url", large.url]) == 1
        drain(large)
    assert "the cache has 1,000 pages: start the server with --num-pages 64" in capsys.readouterr().err
