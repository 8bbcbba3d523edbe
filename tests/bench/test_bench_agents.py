from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openai_stub import REPLY, StubServer, serving

from bench.agents import main
from bench.report import percentile
from bench.workload import WorkloadSpec, build_workload

SIZE = ["--agents", "3", "--turns", "2", "--shared-tokens", "200", "--new-tokens", "60"]


def run(stub: StubServer, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    with serving(stub):
        status = main(["--base-url", stub.url, *SIZE, *options])
    (line,) = capsys.readouterr().out.splitlines()
    return status, json.loads(line)


def test_one_json_line_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    status, line = run(StubServer(), capsys)
    assert status == 0
    assert line["requests"] == 6
    assert line["errors"] == 0
    assert line["prompt_tokens"] == 3 * (20 + 40)
    assert line["cached_tokens"] == 6 * 5
    assert line["output_tokens"] == 6 * len(REPLY)
    assert line["ignore_eos"] is True
    assert line["sized_by"] == "tokenizer"
    assert 0 < line["ttft_p50_s"] <= line["ttft_p95_s"] <= line["wall_s"]
    assert 0 <= line["inter_token_p50_s"] <= line["inter_token_p99_s"]


def test_a_turn_sends_everything_before_it_and_the_reply(capsys: pytest.CaptureFixture[str]) -> None:
    stub = StubServer(tokenize=False)
    run(stub, capsys, "--api-key", "secret")
    spec = WorkloadSpec(agents=3, turns=2, shared_tokens=200, new_tokens=60)
    workload = build_workload(spec)
    second_turns = [request for request in stub.requests if len(request["messages"]) == 4]
    sent = [request["messages"] for request in second_turns]
    for agent in range(3):
        reply = {"role": "assistant", "content": "".join(REPLY)}
        assert [*workload.opening(agent), reply, workload.user_message(agent, 1)] in sent
    request = second_turns[0]
    assert request["authorization"] == "Bearer secret"
    assert request["model"] == "stub-model"
    assert (request["temperature"], request["max_tokens"], request["ignore_eos"]) == (0, 24, True)


def test_a_server_that_refuses_ignore_eos_is_asked_without_it_and_the_line_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stub = StubServer(refuse_ignore_eos=True)
    status, line = run(stub, capsys)
    assert status == 0
    assert line["ignore_eos"] is False
    assert (line["requests"], line["errors"]) == (6, 0)


def test_figures_the_server_does_not_report_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    _, line = run(StubServer(tokenize=False, report_cached=False), capsys)
    assert line["cached_tokens"] is None
    assert line["sized_by"] == "characters"


def test_a_failed_request_ends_its_agent_and_the_status_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    status, line = run(StubServer(fail_turn=1), capsys)
    assert status == 1
    assert (line["requests"], line["errors"]) == (3, 3)
    assert "HTTP 500" in line["error_messages"][0]
    assert "out of pages" in line["error_messages"][0]


def test_a_stream_that_ends_early_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    status, line = run(StubServer(cut_stream=True), capsys)
    assert status == 1
    assert (line["requests"], line["errors"]) == (0, 3)
    assert line["ttft_p50_s"] is None


def test_records_hold_every_reply(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(StubServer(), capsys, "--records", str(tmp_path / "records.json"))
    records = json.loads((tmp_path / "records.json").read_text("utf-8"))
    assert [(record["agent"], record["turn"]) for record in records] == [(a, t) for a in range(3) for t in range(2)]
    assert {record["reply"] for record in records} == {"".join(REPLY)}


def test_an_unreachable_server_is_one_sentence_and_status_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--base-url", "http://127.0.0.1:9", *SIZE]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("bench/agents.py: ")
    assert "Traceback" not in captured.err


def test_percentiles_are_values_that_were_measured() -> None:
    values = [0.4, 0.1, 0.3, 0.2]
    assert percentile(values, 50) == 0.2
    assert percentile(values, 95) == 0.4
    assert percentile([0.1], 99) == 0.1
    assert percentile([], 50) is None
