"""``agentcache_saved_prefill_seconds_total``: what cached tokens would have cost, at the price that was measured."""

from __future__ import annotations

import random

import pytest
from live import LiveServer, live_server

from agentcache.engine.stats import PrefillCost

NAME = "agentcache_saved_prefill_seconds_total"


def fresh_ids(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(500), k=length)


def figures(server: LiveServer) -> dict[str, float]:
    lines = server.http.get("/metrics").text.splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


def test_nothing_costs_nothing_before_anything_was_measured():
    cost = PrefillCost()
    assert cost.seconds_per_token == 0
    cost.observe(prompt_tokens=0, rows=8, seconds=1.0)  # a step of decodes
    cost.observe(prompt_tokens=8, rows=8, seconds=-1.0)  # a clock that was set back
    assert cost.seconds_per_token == 0


def test_the_cost_of_a_token_is_the_one_of_long_steps():
    cost = PrefillCost()
    cost.observe(2000, 2000, 0.020)
    assert cost.seconds_per_token == pytest.approx(1e-5)
    for _ in range(20):  # full hits redo one token each, in a step that costs half as much as one of 2,000
        cost.observe(1, 1, 0.010)
    assert cost.seconds_per_token == pytest.approx(1e-5, rel=0.01)


def test_decodes_in_the_same_step_bear_their_share():
    cost = PrefillCost()
    cost.observe(prompt_tokens=30, rows=40, seconds=0.4)
    assert cost.seconds_per_token == pytest.approx(0.01)


def test_the_cost_follows_what_was_measured_lately():
    cost = PrefillCost()
    cost.observe(100, 100, 10.0)  # such as the first step of a process
    for _ in range(1000):
        cost.observe(100, 100, 0.1)
    assert cost.seconds_per_token == pytest.approx(0.001, rel=0.01)


def test_hits_save_the_seconds_that_their_tokens_would_have_cost(tiny):
    prompt = fresh_ids(400, 1)
    with live_server(tiny.folder, num_pages=128) as server:
        assert figures(server)[NAME] == 0
        server.complete(prompt, max_tokens=1)
        cold = figures(server)
        assert cold[NAME] == 0  # nothing was cached
        took = cold["agentcache_step_time_seconds_sum"]
        server.complete(prompt, max_tokens=1)
        first = figures(server)[NAME]
        assert 0 < first <= took * 399 / 400 * 1.001
        before = figures(server)[NAME]
        server.complete(fresh_ids(50, 2), max_tokens=4)
        assert figures(server)[NAME] == before  # a miss saves nothing
        server.complete(prompt, max_tokens=1)
        assert figures(server)[NAME] > before


def test_without_a_cache_nothing_is_saved(tiny):
    with live_server(tiny.folder, num_pages=64, prefix_cache=False) as server:
        for _ in range(2):
            server.complete(fresh_ids(100, 3), max_tokens=1)
        assert figures(server)[NAME] == 0
