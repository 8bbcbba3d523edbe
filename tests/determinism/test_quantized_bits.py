"""The default model in int4: the same bits cold, warm, on the next turn and in company; and sensible text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tiny_models
from engine_bits import GREEDY, SEEDED, Ask, running

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.model.hub import resolve_model

# Kept between runs, as a user's would be; ignored by git.
HOME = Path(__file__).parents[2] / ".cache" / "agentcache"


def test_quantised_smollm2_answers_the_same_bits_however_it_is_asked() -> None:
    folder = resolve_model("smollm2", HOME).folder
    prompts = [tiny_models.random_prompt(length, seed=length, vocab=40_000) for length in (70, 41, 12)]
    asks = [Ask(prompt, replace(params, max_tokens=5)) for prompt, params in zip(prompts, [GREEDY, SEEDED, GREEDY])]
    with running(folder, num_pages=60, weights="int4", prefix_cache=False) as engine:
        cold = [engine.answer(ask)[0] for ask in asks]
        turn = Ask([*prompts[0], *cold[0].ids, 100, 200, 300], asks[0].params)
        (next_cold,) = engine.answer(turn)
    with running(folder, num_pages=60, weights="int4", prefill_chunk=48) as engine:
        together, again = engine.answer(*asks), engine.answer(*asks)
        (next_warm,) = engine.answer(turn)
        tokenizer = Tokenizer.from_folder(folder)
        question = ChatRenderer(tokenizer).render([{"role": "user", "content": "What is the capital of France?"}])
        (reply,) = engine.answer(Ask(question.token_ids, replace(GREEDY, max_tokens=8)))
    assert next_warm.report.cached_tokens == len(turn.prompt) - 4
    assert [reply.bits for reply in together] == [reply.bits for reply in again] == [reply.bits for reply in cold]
    assert next_warm.bits == next_cold.bits
    assert "Paris" in tokenizer.decode(reply.ids)
