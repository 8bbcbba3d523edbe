"""The default model in int4: the same bits cold, warm, on the next turn and in company; and sensible text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tiny_models
import torch
from engine_bits import GREEDY, SEEDED, Ask, running

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.model.hub import resolve_model
from agentcache.model.loader import load_transformer
from agentcache.model.quantized_load import WeightFormat

# Kept between runs, as a user's would be; ignored by git.
HOME = Path(__file__).parents[2] / ".cache" / "agentcache"
TEXT = (
    "A hash table keeps values under keys. It computes a number from the key and looks in the place that the number says, so "
    "that finding a value takes the same time however many there are, unless many keys fall into one place."
)


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


def test_fast_changes_the_default_models_log_probabilities_by_rounding_only() -> None:
    files = resolve_model("smollm2", HOME)
    ids = Tokenizer.from_folder(files.folder).encode(TEXT)
    losses = []
    for policy in ("exact", "fast"):
        weights = WeightFormat("int4", policy)
        model = load_transformer(files, device=tiny_models.CPU, dtype=torch.float32, weights=weights)
        logprobs = tiny_models.PagedRun(model).logprobs(ids, chunk=len(ids))
        losses.append(logprobs[:-1].gather(1, torch.tensor(ids[1:])[:, None]))
    assert len(ids) > 40  # more than the rows that fast leaves to the other operator
    assert 0 < (losses[0] - losses[1]).abs().mean() < 0.05
