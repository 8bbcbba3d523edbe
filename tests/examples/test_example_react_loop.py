"""The tool loop of the example against a server with a tiny random model, and what all examples share."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import LiveServer, drain, live_server
from rich.console import Console

from agentcache_sdk import Client, ToolCall, ToolRun
from examples.agents import common, react_loop
from examples.agents.toolbox import Toolbox, ToolError

# The cache is emptied between tests, which the library tells.
pytestmark = pytest.mark.filterwarnings("ignore::agentcache_sdk.CacheWarning")
FOLDER = common.ROOT / "examples" / "agents"
EXAMPLES = ("react_loop", "handoff", "long_tool_wait")


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[LiveServer]:
    with live_server(tiny_model, num_pages=1200) as server:
        yield server


@pytest.fixture(autouse=True)
def _empty_cache(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        request.getfixturevalue("server").http.post("/v1/cache/flush").raise_for_status()


def test_every_forced_turn_calls_its_tool_and_computes_only_what_is_new(server: LiveServer) -> None:
    trace = common.Trace(Console(quiet=True))
    toolbox = Toolbox(FOLDER)
    files = common.largest_files(toolbox, 4)
    runs: list[ToolRun] = []
    trace.on_result = runs.append  # type: ignore[method-assign]
    args = common.example_parser("", max_tokens=120).parse_args([])
    args.question, args.turns, args.seed, args.free = "Which page is evicted first?", 4, 1, False
    with Client(server.url) as client:
        tools = common.narrow_tools(toolbox, files, ["page", "evicted"])
        with client.session(system=react_loop.SYSTEM, tools=tools) as session:
            react_loop.investigate(session, args, files, trace)
            rows = session.report().rows
            last = session.messages[-1]
    assert [run.call.name for run in runs[:3]] == ["list_files", "search_text", "read_file"]
    assert json.loads(runs[2].call.arguments)["path"] in files
    assert runs[0].content == toolbox.list_files(".", json.loads(runs[0].call.arguments).get("limit", 8))
    assert len(rows) == trace.turns == 5
    assert last["role"] == "assistant"
    assert not last.get("tool_calls")
    for before, row in itertools.pairwise(rows):
        assert row.cached >= before.sent, "the reply of the turn before is cached as well"
        assert row.lost == 0
    drain(server)


def test_free_turns_end_with_an_answer(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    status = react_loop.main(
        ["--url", server.url, "--free", "--turns", "2", "--max-tokens", "32", "--folder", str(FOLDER)]
    )
    printed = capsys.readouterr()
    assert status == 0, printed.err
    assert "tokens per turn" in printed.out
    drain(server)


def test_the_command_prints_each_turn_and_the_report(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert react_loop.main(["--url", server.url, "--turns", "1", "--max-tokens", "60"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("turn 1  list_files(") and "cached 0" in line for line in lines)
    assert any(line.startswith("turn 2  answer") for line in lines)
    assert any("tokens per turn" in line for line in lines)
    drain(server)


def test_a_call_that_was_made_before_is_refused() -> None:
    repeats = react_loop.Repeats()
    call = ToolCall(id="a", name="read_file", arguments='{"path": "a.py"}')
    assert repeats.check(call) is None
    assert repeats.check(ToolCall(id="b", name="read_file", arguments='{"path": "b.py"}')) is None
    assert "Make another one" in str(repeats.check(ToolCall(id="c", name="read_file", arguments='{"path": "a.py"}')))


@pytest.mark.parametrize(("turns", "names"), [(1, 1), (2, 2), (5, 3)])
def test_forced_turns_are_as_many_as_asked_for(turns: int, names: int) -> None:
    *forced, answer = react_loop.forced(turns, ["a.py"])
    assert len(forced) == turns
    assert [isinstance(step["tool_choice"], dict) for step in forced] == [True] * names + [False] * (turns - names)
    assert answer["tool_choice"] == "none"


def test_narrow_tools_let_nothing_be_invented() -> None:
    toolbox = Toolbox(FOLDER)
    list_files, search_text, read_file = common.narrow_tools(toolbox, ["toolbox.py"], ["root"])
    assert read_file(path="toolbox.py", start=1) == toolbox.read_file("toolbox.py", 1, 12)
    assert search_text(word="root") == toolbox.search_text("root")
    assert list_files() == toolbox.list_files(".", 8)
    with pytest.raises(ToolError, match="outside the folder"):
        read_file(path="../../pyproject.toml", start=1)


def test_a_folder_without_text_files_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert react_loop.main(["--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("react_loop: expected a folder with text files in it")


def test_a_reply_too_short_for_a_call_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        react_loop.main(["--max-tokens", "8"])
    assert "got '8', expected at least 32 tokens" in capsys.readouterr().err


def test_no_server_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert react_loop.main(["--url", "http://127.0.0.1:9"]) == 1
    assert "react_loop: http://127.0.0.1:9: cannot connect" in capsys.readouterr().err


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_runs_as_a_file(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), "--help"], capture_output=True, text=True, cwd="/", check=True
    )
    assert "--url" in done.stdout


def test_local_runs_the_engine_in_this_process(tiny_model: Path) -> None:
    args = common.example_parser("", max_tokens=4).parse_args(["--local", "--model", str(tiny_model)])
    with common.connected(args, Console(quiet=True), num_pages=64) as client:
        assert client.cache().total == 64
