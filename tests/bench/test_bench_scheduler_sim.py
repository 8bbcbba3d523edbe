"""The simulation replays from its seed, and steps that it makes at once are those that it would have made one by one."""

from __future__ import annotations

import json
import random

import pytest

from agentcache.scheduler.policy import POLICIES
from agentcache.scheduler.scheduler import Limits
from bench import scheduler_sim
from bench.sim_scheduler.engine import SimEngine
from bench.sim_scheduler.runs import Setup, most_overtaken, run
from bench.sim_scheduler.traces import TraceShape

SMALL = TraceShape(
    context=3_000, appended=200, generated=40, page_size=16, requests=120, rate=40.0, cold=900, contexts=6,
    sessions=8, at_once=5, steps=6, shared=300, tool_s=1.0,
)  # fmt: skip


def setup(trace: str, policy: str, **fields) -> Setup:
    fields = {"num_pages": 3_000, "limits": Limits(256, 24, 10**6), "seed": 3} | fields
    return Setup(trace, policy, SMALL, **fields)


@pytest.mark.parametrize("trace", ["open", "agents"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_replays_exactly(trace, policy):
    first, second = run(setup(trace, policy)), run(setup(trace, policy))
    assert first.ttft == second.ttft and first.steps == second.steps and first.sessions_s == second.sessions_s
    assert len(first.ttft) == (SMALL.requests if trace == "open" else SMALL.sessions * SMALL.steps)
    assert min(first.ttft) > 0 and 0 < first.hit_rate < 1


@pytest.mark.parametrize("trace", ["open", "agents"])
@pytest.mark.parametrize("pages", [3_000, 700])
def test_steps_made_at_once_change_nothing(trace, pages, monkeypatch):
    at_once = run(setup(trace, "hrrn", num_pages=pages))
    monkeypatch.setattr(SimEngine, "_decode_on", lambda *_: None)
    one_by_one = run(setup(trace, "hrrn", num_pages=pages))
    assert len(at_once.step_cpu) < at_once.steps
    assert at_once.preemptions == one_by_one.preemptions and at_once.overtaken == one_by_one.overtaken
    assert at_once.hit_rate == one_by_one.hit_rate
    assert at_once.steps == one_by_one.steps
    assert at_once.ttft == pytest.approx(one_by_one.ttft, rel=1e-6)


def test_overtaking_is_counted_from_the_order_of_admission():
    assert most_overtaken([]) == most_overtaken([1, 2, 3]) == 0
    assert most_overtaken([5, 3, 4, 1, 2]) == 3
    order = random.Random(0).sample(range(200), 200)
    counts = [sum(earlier > rank for earlier in order[:at]) for at, rank in enumerate(order)]
    assert most_overtaken(order) == max(counts)


def test_the_command_prints_every_run(capsys):
    flags = [f"--{name.replace('_', '-')}={getattr(SMALL, name)}" for name in scheduler_sim._SHAPE_FLAGS]
    assert scheduler_sim.main([*flags, "--pages=3000", "--no-step", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    names = ["fcfs", "longest-prefix", "hrrn"]
    assert [(r["trace"], r["policy"]) for r in runs] == [
        *(("open", name) for name in names),
        *(("agents", name) for name in [*names, "hrrn, no programs"]),
    ]
