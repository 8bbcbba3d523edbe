"""Both runners on one tiny random model: the server's replies are those of ``generate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from live import drain, live_server
from tiny_folder import write_tiny_folder

from bench import agents, baseline_hf
from bench.workload import WorkloadSpec, build_workload


def test_both_sides_answer_the_same_workload_with_the_same_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(agents.__file__).with_name("system_prompt.md")).read_text("utf-8")
    model = tmp_path / "tiny"
    write_tiny_folder(model, corpus=text.splitlines(keepends=True), vocab_size=1000)
    workload = build_workload(WorkloadSpec(agents=3, turns=3, shared_tokens=300, new_tokens=80, output_tokens=10))
    workload.save(tmp_path / "workload.json")

    def run(main: Any, name: str, *options: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        records = tmp_path / f"{name}.json"
        status = main(["--workload", str(tmp_path / "workload.json"), "--records", str(records), *options])
        printed = capsys.readouterr()
        assert status == 0, printed.err
        return json.loads(printed.out), json.loads(records.read_text("utf-8"))

    with live_server(model) as server:
        ours, our_records = run(agents.main, "ours", "--base-url", server.url)
        drain(server)
    theirs, their_records = run(baseline_hf.main, "theirs", "--model", str(model), "--threads", "1")

    assert ours.keys() == theirs.keys()
    same = ("agents", "turns", "workload", "sized_by", "prompt_tokens", "output_tokens", "requests", "errors")
    assert [ours[key] for key in same] == [theirs[key] for key in same]
    assert ours["output_tokens"] == 3 * 3 * 10
    assert ours["cached_tokens"] > ours["prompt_tokens"] / 2
    assert theirs["cached_tokens"] == 0
    replies = [[record["reply"] for record in records] for records in (our_records, their_records)]
    assert replies[0] == replies[1]
