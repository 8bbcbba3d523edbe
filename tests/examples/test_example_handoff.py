"""A second agent goes on with the first one's session, against a server with a tiny random model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live import LiveServer, drain, live_server
from rich.console import Console

from agentcache_sdk import Client
from examples.agents import handoff
from examples.agents.common import Trace, largest_files, narrow_tools
from examples.agents.toolbox import Toolbox

# The cache is emptied between tests, which the library tells.
pytestmark = pytest.mark.filterwarnings("ignore::agentcache_sdk.CacheWarning")
SAMPLING: dict[str, Any] = {"max_tokens": 60, "temperature": 0.8, "seed": 1}


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[LiveServer]:
    with live_server(tiny_model, num_pages=1200) as server:
        yield server


def test_all_that_the_triager_said_and_read_is_cached_for_the_fixer(server: LiveServer) -> None:
    toolbox = Toolbox(handoff.ROOT / "agentcache" / "cache")
    tools = narrow_tools(toolbox, largest_files(toolbox, 4), handoff.WORDS)
    silent = Console(quiet=True)
    with Client(server.url) as first, first.session(system=handoff.TRIAGER, tools=tools) as triager:
        handoff.triage(triager, SAMPLING, Trace(silent))
        transcript, last = handoff.pasted(triager), triager.report().rows[-1]
        before = len(triager.messages)
        with Client(server.url) as second:
            with second.resume(str(triager.id), tools=[*tools, handoff.propose_change]) as fixer:
                kept = handoff.fix(fixer, handoff.FIXER, SAMPLING, Trace(silent))
                assert fixer.messages[:before] == triager.messages
                assert all(row.lost == 0 for row in fixer.report().rows)
            afresh = handoff.start_afresh(second, [*tools, handoff.propose_change], transcript, SAMPLING, Trace(silent))
    assert kept.usage.cached_tokens >= last.sent
    assert [call.name for call in kept.tool_calls] == ["propose_change"], "a tool that was added can be called"
    assert afresh.usage.cached_tokens < 64, "another system prompt has hardly a beginning in common"
    assert handoff.to_compute(afresh) > 2 * handoff.to_compute(kept)
    drain(server)


def test_the_command_prints_both_ways(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert handoff.main(["--url", server.url, "--max-tokens", "60"]) == 0
    printed = capsys.readouterr().out
    assert "handed over" in printed
    assert "times as much to compute when started afresh" in printed
    drain(server)


def test_a_pasted_transcript_has_every_message(server: LiveServer) -> None:
    with Client(server.url) as client, client.session(system="Be short.") as session:
        turn = session.send("Who are you?", max_tokens=3)
        assert handoff.pasted(session) == f"system: Be short.\nuser: Who are you?\nassistant: {turn.text}"
    drain(server)
