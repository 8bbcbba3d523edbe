"""A row's result does not depend, to the last bit, on which other rows run in the same step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_models
import torch
from tiny_models import PagedRun

from agentcache.model.hub import ModelFiles
from agentcache.model.transformer import Transformer

_SMOLLM2_LAYERS = {
    "model_type": "llama",
    "vocab_size": 1024,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 2,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Transformer:
    folder = tmp_path_factory.mktemp("dummy")
    (folder / "config.json").write_text(json.dumps(_SMOLLM2_LAYERS))
    return tiny_models.load(ModelFiles(folder, "dummy", "test"), "dummy")


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_a_decode_row_has_the_same_bits_alone_and_in_company(model: Transformer, threads: int) -> None:
    prompts = [tiny_models.random_prompt(17 + 3 * index, seed=index) for index in range(14)]
    alone = []
    for prompt in prompts:
        run = PagedRun(model)
        run.step({0: prompt})
        alone.append(run.step({0: [5]})[0])
    for company in range(1, len(prompts) + 1):
        run = PagedRun(model)
        for sequence in range(company):
            run.step({sequence: prompts[sequence]})
        rows = run.step({sequence: [5] for sequence in range(company)})
        for sequence in range(company):
            assert torch.equal(rows[sequence], alone[sequence]), f"row {sequence} of {company}, {threads} threads"


def test_the_last_prompt_row_has_the_same_bits_with_a_decode_row_beside_it(model: Transformer, threads: int) -> None:
    prompt, other = tiny_models.random_prompt(6), tiny_models.random_prompt(20, seed=1)
    alone = PagedRun(model).step({0: prompt})
    run = PagedRun(model)
    run.step({1: other})
    assert torch.equal(run.step({0: prompt, 1: [3]})[: len(prompt)], alone)


def test_dummy_weights_are_the_same_every_time(model: Transformer, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_SMOLLM2_LAYERS))
    again = tiny_models.load(ModelFiles(tmp_path, "dummy", "test"), "dummy")
    assert torch.equal(again.embedding, model.embedding)
    assert 0.01 < float(again.embedding.std()) < 0.03
