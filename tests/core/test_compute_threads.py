"""One thread for each core that may be used, and no more than a container's share of time."""

from __future__ import annotations

from pathlib import Path

from agentcache.engine.cores import compute_threads


def _machine(path: Path, siblings: dict[int, str]) -> Path:
    for number, text in siblings.items():
        folder = path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")
    return path


def test_hardware_threads_of_a_core_count_once(tmp_path: Path) -> None:
    machine = _machine(tmp_path, {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"})
    nowhere = tmp_path / "no quota"
    assert compute_threads(machine, nowhere, {0, 1, 4, 5}) == 2
    assert compute_threads(machine, nowhere, {0, 4}) == 1
    assert compute_threads(machine, nowhere, {0, 5}) == 2


def test_without_a_topology_every_processor_counts(tmp_path: Path) -> None:
    assert compute_threads(tmp_path, tmp_path / "no quota", {0, 1, 2}) == 3


def test_a_containers_share_of_time_bounds_threads(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    for text, expected in (
        ("max 100000", 4),
        ("150000 100000", 2),
        ("10000 100000", 1),
        ("800000 100000", 4),
        ("?", 4),
    ):
        quota.write_text(text + "\n")
        assert compute_threads(tmp_path, quota, {0, 1, 2, 3}) == expected, text


def test_this_machine_has_at_least_one() -> None:
    assert compute_threads() >= 1
