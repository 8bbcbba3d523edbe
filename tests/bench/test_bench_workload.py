from __future__ import annotations

from pathlib import Path

import pytest

from bench.workload import Workload, WorkloadError, WorkloadSpec, build_workload


def words(text: str) -> int:
    return len(text.split())


def test_the_same_spec_makes_the_same_text() -> None:
    assert build_workload(WorkloadSpec()) == build_workload(WorkloadSpec())
    assert build_workload(WorkloadSpec()).digest == build_workload(WorkloadSpec()).digest


def test_another_seed_gives_the_agents_other_source_text() -> None:
    one, two = build_workload(WorkloadSpec(seed=0)), build_workload(WorkloadSpec(seed=1))
    assert one.system == two.system
    assert not set(one.user[0]) & set(two.user[0])
    assert one.digest != two.digest


def test_more_agents_do_not_change_what_the_first_ones_read() -> None:
    few, many = build_workload(WorkloadSpec(agents=2)), build_workload(WorkloadSpec(agents=6))
    assert many.user[:2] == few.user


def test_only_the_system_prompt_is_shared() -> None:
    workload = build_workload(WorkloadSpec(agents=70, turns=3))
    texts = [text for turns in workload.user for text in turns]
    assert len(set(texts)) == 70 * 3
    assert workload.opening(3) == [
        {"role": "system", "content": workload.system},
        {"role": "user", "content": workload.user[3][0]},
    ]


@pytest.mark.parametrize("shared_tokens", [200, 900, 4000])
@pytest.mark.parametrize("new_tokens", [60, 400])
def test_sizes_come_within_a_line_of_what_was_asked(shared_tokens: int, new_tokens: int) -> None:
    spec = WorkloadSpec(shared_tokens=shared_tokens, new_tokens=new_tokens)
    workload = build_workload(spec, words)
    assert workload.sized_by == "tokenizer"
    longest_line = max(words(line) for line in workload.system.splitlines())
    assert abs(words(workload.system) - (shared_tokens - 5)) <= longest_line
    for turns in workload.user:
        assert len(turns) == spec.turns
        assert sum(words(text) for text in turns) / spec.turns == pytest.approx(new_tokens - 10, abs=8)


def test_tool_results_are_whole_lines_of_real_source_text() -> None:
    import optparse

    workload = build_workload(WorkloadSpec())
    (turns,) = [turns for turns in workload.user if "optparse.py" in turns[0]]
    source = Path(optparse.__file__).read_text("utf-8").splitlines()
    read = [line for text in turns for line in text.splitlines() if not line.startswith(("Task:", "Result of"))]
    assert read == source[: len(read)]


def test_a_saved_workload_reads_back_the_same(tmp_path: Path) -> None:
    workload = build_workload(WorkloadSpec(agents=2, turns=2))
    workload.save(tmp_path / "workload.json")
    assert Workload.load(tmp_path / "workload.json") == workload


def test_a_file_that_is_no_workload_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[]", "utf-8")
    with pytest.raises(WorkloadError, match=r"other\.json: expected a workload file"):
        Workload.load(tmp_path / "other.json")


@pytest.mark.parametrize(("field", "value"), [("agents", 0), ("turns", 0), ("output_tokens", 0), ("new_tokens", 9)])
def test_sizes_that_cannot_be_made_are_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(WorkloadError, match=f"{field}: got {value}, expected at least"):
        WorkloadSpec(**{field: value})


def test_a_system_prompt_longer_than_all_text_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"expected enough for .* tokens"):
        build_workload(WorkloadSpec(shared_tokens=10_000_000))
