from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.compare import Side, agreement, main, medians, table_of


def side(wall: float, cached: int | None, replies: tuple[str, ...] = ("a", "b")) -> Side:
    line: dict[str, Any] = {
        "agents": 1, "turns": 2, "wall_s": wall, "ttft_p50_s": 0.1, "ttft_p95_s": 0.2, "inter_token_p50_s": 0.03,
        "inter_token_p99_s": 0.04, "prompt_tokens": 1000, "cached_tokens": cached, "output_tokens": 48,
    }  # fmt: skip
    return Side(line, {(0, turn): reply for turn, reply in enumerate(replies)})


def text_of(ours: list[Side], baseline: list[Side]) -> str:
    console = Console(width=120, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table_of(ours, baseline))
    return console.export_text()


def test_the_table_shows_both_sides_and_how_many_times_less_time_one_needs() -> None:
    text = text_of([side(10.0, 900)], [side(60.0, 0)])
    (wall,) = [line for line in text.splitlines() if "wall time" in line]
    assert wall.split()[-6:] == ["10.0", "s", "60.0", "s", "6.0", "x"]
    (cached,) = [line for line in text.splitlines() if "cached tokens" in line]
    assert cached.split() == ["cached", "tokens", "900", "0"]


def test_a_table_without_baseline_has_one_column() -> None:
    text = text_of([side(10.0, None)], [])
    assert "generate" not in text
    assert "10.0 s" in text


def test_medians_skip_figures_that_were_not_reported() -> None:
    found = medians([side(1.0, None), side(5.0, None), side(2.0, None)])
    assert found["wall_s"] == 2.0
    assert found["cached_tokens"] is None


def test_agreement_counts_equal_replies_of_every_run() -> None:
    ours = [side(1, 0, ("a", "b")), side(1, 0, ("a", "x"))]
    baseline = [side(1, 0, ("a", "b")), side(1, 0, ("a", "b"))]
    assert agreement(ours, baseline) == "3 of 4 replies are identical"


def test_a_server_that_cannot_start_ends_with_its_own_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["--skip-baseline", "--", "--page-size", "0"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--page-size" in captured.err
    assert "server log:" in captured.err


@pytest.mark.parametrize("options", [["--repeat", "0"], ["--turns", "x"]])
def test_a_bad_command_line_is_status_two(options: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(options)
    assert stop.value.code == 2


def test_impossible_sizes_are_status_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--agents", "0"]) == 2
    assert "agents: got 0, expected at least 1" in capsys.readouterr().err


def test_json_lines_of_both_sides_have_the_same_fields() -> None:
    from bench.report import Run, TurnRecord
    from bench.workload import WorkloadSpec, build_workload

    workload = build_workload(WorkloadSpec(agents=1, turns=1))
    record = TurnRecord(0, 0, "text", 0.5, (0.1, 0.2), 100, None, 3)
    line = Run("target", workload, 1.0, (record,)).summary()
    assert json.loads(json.dumps(line)) == line
    assert line["cached_tokens"] is None
    assert (line["ttft_p50_s"], line["inter_token_p99_s"]) == (0.5, 0.2)
