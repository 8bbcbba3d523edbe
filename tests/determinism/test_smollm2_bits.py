"""The default model, with its real weights and sizes: warm, on the next turn, in company and after preemption."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tiny_models
from engine_bits import GREEDY, SEEDED, Ask, running

from agentcache.model.hub import resolve_model

# Kept between runs, as a user's would be; ignored by git.
HOME = Path(__file__).parents[2] / ".cache" / "agentcache"
FEW = 6


def test_smollm2_answers_the_same_bits_however_it_is_asked() -> None:
    folder = resolve_model("smollm2", HOME).folder
    prompts = [tiny_models.random_prompt(length, seed=length, vocab=40_000) for length in (270, 41, 12)]
    asks = [Ask(prompt, replace(params, max_tokens=FEW)) for prompt, params in zip(prompts, [GREEDY, SEEDED, GREEDY])]
    with running(folder, num_pages=60, prefix_cache=False) as engine:
        cold = [engine.answer(ask)[0] for ask in asks]
        turn = Ask([*prompts[0], *cold[0].ids, 100, 200, 300], asks[0].params)
        (next_cold,) = engine.answer(turn)
    with running(folder, num_pages=60, prefill_chunk=48) as engine:
        together, again = engine.answer(*asks), engine.answer(*asks)
        (next_warm,) = engine.answer(turn)
    assert [reply.report.cached_tokens for reply in again] == [len(prompt) - 1 for prompt in prompts]
    assert next_warm.report.cached_tokens == len(turn.prompt) - 4
    assert [reply.bits for reply in together] == [reply.bits for reply in again] == [reply.bits for reply in cold]
    assert next_warm.bits == next_cold.bits


def test_smollm2_answers_the_same_bits_after_preemption() -> None:
    folder = resolve_model("smollm2", HOME).folder
    asks = [Ask(tiny_models.random_prompt(30 + i, seed=i, vocab=40_000), replace(GREEDY, max_tokens=8)) for i in (0, 1)]
    with running(folder, num_pages=60, page_size=8, prefix_cache=False) as engine:
        cold = [engine.answer(ask)[0] for ask in asks]
    with running(folder, num_pages=9, page_size=8) as engine:
        preempted = engine.answer(*asks)
    assert sum(reply.report.preemptions for reply in preempted) > 0
    assert [reply.bits for reply in preempted] == [reply.bits for reply in cold]
