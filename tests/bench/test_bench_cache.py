"""The cache bench counts what it says, and what it counts is what the cache should reach."""

from __future__ import annotations

import json

import pytest

from bench import cache
from bench.cache_agents import AgentSpec, Simulation
from bench.cache_counts import equal_prompts, forks, groups, page_sizes, restart
from bench.free_engine import FreeEngine, Shape, Tally, Texts
from bench.index_compare import Conversations, compare


def by_case(lines, figure):
    return {line.case: (line.measured, line.optimum) for line in lines if line.figure == figure}


def test_eight_groups_of_eight_reach_fourteen_of_seventeen():
    lines = list(groups())
    for measured, optimum in by_case(lines, "hit rate").values():
        assert measured == optimum == pytest.approx(100 * 14 / 17)
    for measured, optimum in by_case(lines, "prefilled").values():
        assert measured == optimum == 8 * 544 + 56 * 32


def test_partial_reuse_makes_the_page_size_irrelevant():
    figures = by_case(page_sizes(), "prefilled")
    for size in (16, 32, 64, 256, 512):
        assert figures[f"page size {size}, partial reuse on, in turn"] == (1709, 1709)
        measured, optimum = figures[f"page size {size}, partial reuse off, in turn"]
        assert measured == optimum + 7 * (341 % size)


def test_equal_prompts_at_once_cost_one_prefill():
    figures = by_case(equal_prompts(), "prefilled")
    assert figures["16 prompts of 1,024 tokens"] == (1024 + 15, 1024 + 15)
    measured, optimum = figures["16 prompts of 1,000 tokens"]
    assert optimum == 1000 + 15 <= measured <= 1000 + 15 * (1000 % 16)


def test_forks_compute_and_hold_the_trunk_once():
    lines = list(forks())
    assert len(lines) == 32
    assert all(line.measured == line.optimum for line in lines)


def test_a_warm_disk_leaves_one_token_of_each_prompt_to_compute():
    figures = by_case(restart(), "prefilled")
    assert figures["the same prompts, disk warm"] == (8, 8)
    assert figures["others that begin alike, disk warm"] == (2048, 2048)
    assert figures["the same prompts, disk off"][0] == 512 + 8 * 256


def simulate(factor: float, **options) -> tuple[Tally, Tally]:
    spec = AgentSpec(agents=4, turns=5, **options)
    return Simulation(spec, int(spec.live_pages(16) * factor)).run(), spec.best()


def test_agents_with_room_for_all_compute_every_token_once():
    measured, best = simulate(1.0)
    assert measured == best


def test_pins_keep_agents_warm_beside_one_shot_traffic():
    best = simulate(1.0)[1]
    without, _ = simulate(1.0, visitors=4)
    pinned, _ = simulate(1.0, visitors=4, pins=True)
    assert best.prefilled < pinned.prefilled < without.prefilled


def test_prefilled_tokens_leave_out_those_just_drawn():
    engine = FreeEngine(Shape(num_pages=64))
    prompt = Texts()(40)
    answers = [engine.send(prompt, output_tokens=9)]
    engine.run()
    answers.append(engine.send(prompt + answers[0].tokens[0], output_tokens=9))
    engine.run()
    assert Tally.of(answers[:1]) == Tally(prompt=40, cached=0, prefilled=40)
    assert Tally.of(answers[1:]) == Tally(prompt=49, cached=48, prefilled=1)


def test_without_the_cache_everything_is_prefilled():
    engine = FreeEngine(Shape(num_pages=64, enabled=False))
    prompt = Texts()(40)
    answers = [engine.send(prompt) for _ in range(3)]
    engine.run()
    assert Tally.of(answers) == Tally(prompt=120, cached=0, prefilled=120)


def test_overhead_is_measured_on_a_real_model():
    from bench.cache_overhead import OverheadSpec, overhead

    lines = {line.figure: line for line in overhead(OverheadSpec(threads=1, rounds=1, count=2, prompt_tokens=32))}
    assert lines["wall time"].measured > 0
    assert lines["wall time"].optimum > 0
    assert set(lines) == {
        "wall time",
        "more wall time than off",
        "more processor time than off",
        "more processor time than off, pages in turn",
        "index's own share of wall time",
    }


@pytest.mark.parametrize(("total", "each"), [(100, 64), (100, 100), (1000, 64), (130, 8)])
def test_conversations_fill_the_index_to_the_page(total, each):
    assert {timing.pages for timing in compare([total], each)} == {total}
    assert all(len(ids) <= each * 16 for ids in Conversations(total, each))


def test_designs_are_compared_on_the_same_figures():
    timings = list(compare([100], prompt_pages=32))
    assert [timing.design for timing in timings] == ["paged tree", "flat map", "compressed tree", "slots"]
    assert [timing.lost for timing in timings[:2]] == [1, 1]
    assert all(timing.lost >= 1 and timing.lookup_us > 0 for timing in timings)


def test_json_is_one_line(capsys):
    assert cache.main(["--parts", "adi", "--index-pages", "64", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    data = json.loads(out)
    assert {line["part"] for line in data["lines"]} == {"a", "d"}
    assert len(data["designs"]) == 4


def test_tables_put_the_optimum_beside_the_figure(capsys):
    assert cache.main(["--parts", "ai", "--index-pages", "64"]) == 0
    out = capsys.readouterr().out
    assert "82.35 / 82.35 %" in out
    assert "6,144 / 6,144" in out
    assert "slots" in out


@pytest.mark.parametrize("argv", [["--parts", "xz"], ["--index-pages", "3"]])
def test_a_bad_command_line_says_what_was_expected(argv, capsys):
    with pytest.raises(SystemExit) as error:
        cache.main(argv)
    assert error.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_a_model_that_cannot_be_loaded_is_said_in_a_line(tmp_path, capsys):
    assert cache.main(["--parts", "b", "--model", str(tmp_path / "none")]) == 2
    assert "bench/cache.py: " in capsys.readouterr().err
