"""Tokens that were drawn once are drawn again: recorded before rows were worked on in blocks and runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from agentcache.cache.tokens import PagedTokens
from agentcache.model.sampler import Scratch, sample
from agentcache.model.uniform import uniform, uniforms
from agentcache.request import Request, SamplingParams, Sequence

ROWS = 24
KINDS = {
    "plain": SamplingParams(),
    "cool": SamplingParams(temperature=0.6),
    "hot": SamplingParams(temperature=50.0),
    "top_k": SamplingParams(top_k=40),
    "top_k beyond the candidates": SamplingParams(top_k=700, temperature=8.0),
    "top_p": SamplingParams(top_p=0.9),
    "top_p beyond the candidates": SamplingParams(top_p=0.97, temperature=9.0),
    "min_p": SamplingParams(min_p=0.02, temperature=2.0),
    "all filters": SamplingParams(top_k=50, top_p=0.95, min_p=0.01, temperature=1.3),
    "penalties": SamplingParams(repetition_penalty=1.3, presence_penalty=0.7, frequency_penalty=0.4, temperature=3.0),
    "biases": SamplingParams(logit_bias=((5, 4.0), (700, -100.0), (5, 1.0)), temperature=2.0),
    "greedy with penalties": SamplingParams(temperature=0.0, repetition_penalty=1.5, frequency_penalty=1.0),
    "greedy": SamplingParams(temperature=0.0),
}
RECORDED = json.loads(Path(__file__).with_name("recorded_draws.json").read_text("utf-8"))
"""By kind and size of the vocabulary, the token of each row."""


def logits_for(vocab: int) -> Tensor:
    """The same numbers everywhere: whole numbers, hashed and scaled."""
    hashed = (np.arange(ROWS * vocab, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    return torch.from_numpy(hashed.astype(np.float32) / 2**20).view(ROWS, vocab)


def sequences(params: SamplingParams, vocab: int) -> list[Sequence]:
    found = []
    for row in range(ROWS):
        prompt, output = [row, 5, 3], [(7 * row + 11 * i) % vocab for i in range(row)] + [5] * (row % 3)
        request = Request("r", prompt, params, b"", lambda _: None)
        tokens = PagedTokens([*prompt, *output], 16, b"")
        found.append(Sequence(request, 0, tokens, len(prompt), 100, seed=1_000_003 * row - 7))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_tokens_are_drawn_again(kind: str) -> None:
    for size, expected in RECORDED[kind].items():
        vocab = int(size)
        drawn = sample(logits_for(vocab), sequences(KINDS[kind], vocab))
        assert [entry.token for entry in drawn] == expected


def test_rows_of_several_blocks_draw_what_each_draws_alone_in_memory_that_others_used() -> None:
    vocab, scratch = 60_001, Scratch()
    logits = logits_for(vocab)
    for kind in ("plain", "all filters", "penalties", "greedy with penalties"):
        everyone = sequences(KINDS[kind], vocab)
        together = sample(logits, everyone, scratch)
        assert together == sample(logits, everyone)
        alone = [sample(logits[i : i + 1], everyone[i : i + 1], scratch)[0] for i in range(ROWS)]
        assert [entry.token for entry in together] == [entry.token for entry in alone]
        small = sample(logits_for(300), sequences(KINDS[kind], 300), scratch)
        assert small == sample(logits_for(300), sequences(KINDS[kind], 300)), "another model's vocabulary"


def test_a_draw_never_falls_on_a_token_without_weight_at_the_ends_of_runs() -> None:
    logits = torch.full((ROWS, 1000), -torch.inf)
    for token in (0, 255, 256, 511, 999):
        logits[:] = -torch.inf
        logits[:, token] = 1.0
        assert {entry.token for entry in sample(logits, sequences(KINDS["plain"], 1000))} == {token}
    logits[:] = -torch.inf
    logits[:, [255, 256, 999]] = 0.0
    everyone = [entry.token for seed in range(20) for entry in sample(logits, reseeded(seed))]
    counts = np.bincount(everyone, minlength=1000)
    assert counts.sum() == counts[[255, 256, 999]].sum() == 20 * ROWS
    assert counts[[255, 256, 999]].min() > 100


def reseeded(seed: int) -> list[Sequence]:
    everyone = sequences(KINDS["plain"], 1000)
    for row, sequence in enumerate(everyone):
        sequence.seed = 1000 * seed + row
    return everyone


def test_uniform_numbers_are_those_of_numpys_philox() -> None:
    seeds = [0, 1, -1, 7, 2**63, 2**64 - 1, 2**70 + 3, 123_456_789_012_345_678]
    for position in (0, 1, 2, 1000, 2**32, 2**63):
        numbers = uniforms(seeds, [position] * len(seeds)).tolist()
        for seed, number in zip(seeds, numbers):
            expected = np.random.Generator(np.random.Philox(key=seed % 2**64, counter=position)).random()
            assert number == expected == uniform(seed, position)
