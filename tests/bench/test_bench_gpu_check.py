"""The check for machines with a GPU: all of it runs without one, and what goes wrong is told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import gpu_check
from bench.gpu_check import LIMITS, NO_GPU, Part, run_parts, status_of
from bench.gpu_parts import run

FINE = {"part": "x", "name": "figure", "value": 1.0, "unit": "s", "goal": "", "ok": True}


def test_all_of_it_runs_under_the_interpreter_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--interpret", "--out", str(tmp_path)]) == 0
    assert "nothing is measured" in " ".join(capsys.readouterr().out.split())
    told = json.loads((tmp_path / "gpu_check.json").read_text("utf-8"))
    assert [part["part"] for part in told["parts"]] == list(LIMITS)
    assert all(part["ended"] == "done" and part["findings"] for part in told["parts"])
    table = (tmp_path / "gpu_check.md").read_text("utf-8")
    assert "| kernels | attention, splits" in table
    assert "| cache_on | agents together: output |" in table


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(gpu_check, "gpu_name", lambda: None)
    assert gpu_check.main([]) == NO_GPU
    assert "There is no GPU" in capsys.readouterr().err


def test_the_limits_leave_room_in_eight_minutes() -> None:
    assert sum(LIMITS.values()) <= 8 * 60 - 5
    assert list(LIMITS) == list(run.PARTS)


def test_the_status_says_which_parts_failed() -> None:
    missed = FINE | {"goal": ">= 2", "ok": False}
    parts = [Part("kernels", "done", [FINE]), Part("bandwidth", "done", [FINE, missed]), Part("bits", "failed", [])]
    assert status_of(parts) == 2 + 16
    assert status_of(parts[:1]) == 0
    assert status_of(Part(name, "out of time", []) for name in LIMITS) < NO_GPU


def test_a_part_that_breaks_is_failed_and_the_next_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(run, "PARTS", {"kernels": "no_such.run", "bits": "bits.products"})
    assert run.main([str(tmp_path), "kernels", "bits"]) == 1
    assert [file.name for file in tmp_path.glob("*.done")] == ["bits.done"]
    assert json.loads((tmp_path / "bits.jsonl").read_text("utf-8"))["ok"]


def test_a_part_that_takes_too_long_keeps_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "bits", 0.05)
    (tmp_path / "bits.jsonl").write_text(json.dumps(FINE) + "\n", "utf-8")
    (part,) = run_parts(["bits"], tmp_path, interpret=False)
    assert part == Part("bits", "out of time", [FINE])
    assert gpu_check._rows([part])[-1] == ("bits", "the part itself", "out of time", "done", "FAILED")
