"""The example agents over HTTP against a server with a tiny random model."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from live import LiveServer, drain, live_server
from rich.console import Console
from tiny_folder import write_tiny_folder

from agentcache_sdk import AsyncClient
from examples.agents.code_reader import ROOT, CodeReader, TurnRow, main
from examples.agents.local_server import LocalServer, ServerFailedError
from examples.agents.toolbox import Toolbox

SCRIPTS = ROOT / "examples" / "agents"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (SCRIPTS / "code_reader_prompt.md").read_text("utf-8") + (SCRIPTS / "toolbox.py").read_text("utf-8")
    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_tiny_folder(folder, corpus=text.splitlines(keepends=True), vocab_size=1000, max_position_embeddings=8192)
    return folder


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[LiveServer]:
    with live_server(model, num_pages=2000) as server:
        yield server


@pytest.fixture(autouse=True)
def _empty_cache(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        request.getfixturevalue("server").http.post("/v1/cache/flush").raise_for_status()


async def read(server: LiveServer, reader: CodeReader, turns: int) -> list[TurnRow]:
    async with AsyncClient(server.url) as client:
        return [row async for row in reader.run(client, turns)]


def test_every_turn_reuses_the_whole_turn_before_it(server: LiveServer) -> None:
    rows = asyncio.run(read(server, CodeReader("reader", Toolbox(SCRIPTS), max_tokens=6), 4))
    assert rows[0].cached_tokens == 0
    assert rows[0].prompt_tokens > 1000
    for before, row in itertools.pairwise(rows):
        # Whole pages of it: the last one is partly filled, and a reply that begins with white space may join the line
        # end before it.
        assert (before.prompt_tokens - 1) // 16 * 16 <= row.cached_tokens < row.prompt_tokens
        assert row.cached_tokens + row.computed_tokens >= row.prompt_tokens
        assert row.messages[: len(before.messages)] == before.messages
    assert [row.call.name for row in rows[:3]] == ["list_files", "read_file", "search_text"]
    drain(server)


def test_a_second_agent_reuses_the_system_prompt_of_the_first(server: LiveServer) -> None:
    toolbox = Toolbox(SCRIPTS)
    asyncio.run(read(server, CodeReader("one", toolbox, max_tokens=4), 1))
    (row,) = asyncio.run(read(server, CodeReader("two", Toolbox(ROOT / "tests"), max_tokens=4), 1))
    system = server.http.post("/tokenize", json={"prompt": CodeReader("one", toolbox).system_prompt()}).json()["count"]
    assert system <= row.cached_tokens < row.prompt_tokens
    drain(server)


def test_the_command_prints_every_turn_and_a_table(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--base-url", server.url, "--folder", str(SCRIPTS), "--turns", "3", "--max-tokens", "5"])
    printed = capsys.readouterr().out
    assert status == 0
    assert "turn 3  search_text(" in printed
    assert "first token" in printed
    drain(server)


def test_no_server_is_one_sentence_and_status_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--base-url", "http://127.0.0.1:9"]) == 1
    assert "code_reader: http://127.0.0.1:9: cannot connect" in capsys.readouterr().err


def test_the_demo_shows_both_passes_and_leaves_nothing_behind(model: Path, tmp_path: Path) -> None:
    demo = start_demo(model, tmp_path)
    printed, errors = demo.communicate(timeout=120)
    assert demo.returncode == 0, errors
    assert "2 agents at once, one system prompt, cache on" in printed
    assert "cache off: the same prompts" in printed
    assert "4 of 4 replies are equal with and without the cache" in printed
    assert "tokens computed" in printed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_ended_while_its_server_loads_leaves_nothing_behind(
    model: Path, tmp_path: Path, ending: signal.Signals
) -> None:
    demo = start_demo(model, tmp_path)
    server = server_of(demo)
    demo.send_signal(ending)
    expect_a_clean_end(demo, server, tmp_path)


def test_a_demo_that_is_ended_in_the_middle_of_its_turns_leaves_nothing_behind(model: Path, tmp_path: Path) -> None:
    demo = start_demo(model, tmp_path, turns=200)
    server = server_of(demo)
    wait_until(demo, lambda: sum(link.status == psutil.CONN_ESTABLISHED for link in server.net_connections()) == 2)
    demo.send_signal(signal.SIGINT)
    expect_a_clean_end(demo, server, tmp_path)


def test_a_server_that_refuses_its_options_is_shown_with_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ServerFailedError, match=r"(?s)status 2.*--page-size.*server log: .*server\.log"):
        LocalServer("--page-size", "0", console=Console(quiet=True)).__enter__()


def start_demo(model: Path, temporary: Path, turns: int = 2) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPTS / "demo.py"), "--model", str(model)]
    command += ["--agents", "2", "--turns", str(turns), "--max-tokens", "4"]
    environment = {**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1", "COLUMNS": "140"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def wait_until(demo: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert demo.poll() is None, demo.communicate()
        assert time.monotonic() < deadline, "the demo did not get there"
        time.sleep(0.02)


def server_of(demo: subprocess.Popen[str]) -> psutil.Process:
    """The demo's server, once it has started one."""
    process = psutil.Process(demo.pid)
    wait_until(demo, lambda: bool(process.children()))
    return process.children()[0]


def expect_a_clean_end(demo: subprocess.Popen[str], server: psutil.Process, temporary: Path) -> None:
    _, errors = demo.communicate(timeout=30)
    assert (demo.returncode, errors) == (130, "demo: stopped\n")
    assert not server.is_running()
    assert not list(temporary.iterdir())
