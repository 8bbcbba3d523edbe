"""Reviewers that are forks of one reading, against a server with a tiny random model."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live import LiveServer, drain, live_server

from agentcache_sdk import AsyncClient
from examples.agents import fanout_review
from examples.agents.fanout_review import Cost, Job, Review

# Every test ends with an empty cache, and the next one's client is told so.
pytestmark = pytest.mark.filterwarnings("ignore::agentcache_sdk.PrefixBreakWarning")
ASPECTS = ("correctness", "naming", "tests")
SAMPLING: dict[str, Any] = {"max_tokens": 120, "temperature": 0.7, "seed": 1}


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[LiveServer]:
    with live_server(tiny_model, num_pages=1200) as server:
        yield server


def job(lines: int = 60) -> Job:
    return Job("count.py", "\n".join(f"value = {number}  # a line" for number in range(lines)), ASPECTS, SAMPLING)


async def reviewed(server: LiveServer, of: Job) -> tuple[int, list[Review], dict[str, str], int, Cost]:
    """Prompt tokens of the reading, the reviews, the decision, what its turn had to compute, the cost of doing it alone."""
    async with AsyncClient(server.url) as client:
        async with client.session(system=fanout_review.SYSTEM) as session:
            read = await session.send(of.reading, max_tokens=1)
            reviews = await fanout_review.review(session, of)
            assert [info.id for info in await client.sessions()] == [session.id], "the forks are closed"
            decision = await fanout_review.merge(session, reviews, of)
            merged = session.report().rows[-1]
            assert (merged.turn, merged.lost) == (1, 0)
        return read.usage.prompt_tokens, reviews, decision, merged.cached, await fanout_review.independent(client, of)


def test_every_reviewer_finds_the_whole_reading_cached(server: LiveServer) -> None:
    read, reviews, decision, merged_cached, alone = asyncio.run(reviewed(server, job()))
    assert [one.aspect for one in reviews] == list(ASPECTS)
    for one in reviews:
        assert one.turn.usage.cached_tokens >= read, one.aspect
        assert fanout_review.computed(one.turn) < 200 < read
        assert one.verdict in ("ok", "concern")
        assert 1 <= one.line <= 60
    assert merged_cached >= read
    assert decision["first"] in ASPECTS
    assert alone.computed > len(ASPECTS) * read, "requests with salts of their own share nothing"
    drain(server)


def test_a_reply_that_is_cut_is_one_sentence_and_no_fork_is_left(
    server: LiveServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fanout_review.main(["--url", server.url, "--max-tokens", "4", "--file", "examples/agents/toolbox.py"]) == 1
    assert capsys.readouterr().err == "fanout_review: a reply was cut after 4 tokens: raise --max-tokens\n"
    assert server.http.get("/v1/sessions").json()["data"] == []
    drain(server)


def test_the_command_prints_the_reviews_and_both_costs(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--reviewers", "2", "--max-tokens", "120", "--file", "agentcache/cache/public.py"]
    assert fanout_review.main(["--url", server.url, *flags]) == 0
    printed = capsys.readouterr().out
    for part in ("Reviews of agentcache/cache/public.py", "Decision: ", "read once, forked", "independent requests"):
        assert part in printed
    drain(server)


def test_a_file_that_is_not_there_is_named(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert fanout_review.main(["--url", server.url, "--file", "none.py"]) == 1
    assert "--file: got none.py, expected a text file" in capsys.readouterr().err


def test_help_names_every_flag() -> None:
    done = subprocess.run(
        [sys.executable, fanout_review.__file__, "--help"], check=True, capture_output=True, text=True, timeout=60
    )
    for flag in ("--url", "--model", "--file", "--reviewers", "--seed", "--no-compare"):
        assert flag in done.stdout
