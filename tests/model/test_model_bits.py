"""A row's result does not depend, to the last bit, on which other rows run in the same step."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import tiny_models
import torch
from tiny_models import PagedRun

from agentcache.model.hub import ModelFiles
from agentcache.model.layers import silu
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


Paged = Callable[..., PagedRun]


def _model(folder: Path) -> Transformer:
    (folder / "config.json").write_text(json.dumps(_SMOLLM2_LAYERS))
    return tiny_models.load(ModelFiles(folder, "dummy", "test"), "dummy")


@pytest.fixture(scope="module", params=[False, True], ids=["torch", "compiled"])
def paged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Paged:
    """Makes runs of the model on one kind of kernels."""
    return partial(PagedRun, _model(tmp_path_factory.mktemp("dummy")), compiled=request.param)


def test_a_decode_row_has_the_same_bits_alone_and_in_company(paged: Paged, threads: int) -> None:
    prompts = [tiny_models.random_prompt(17 + 3 * index, seed=index) for index in range(14)]
    alone = []
    for prompt in prompts:
        run = paged()
        run.step({0: prompt})
        alone.append(run.step({0: [5]})[0])
    for company in range(1, len(prompts) + 1):
        run = paged()
        for sequence in range(company):
            run.step({sequence: prompts[sequence]})
        rows = run.step({sequence: [5] for sequence in range(company)})
        for sequence in range(company):
            assert torch.equal(rows[sequence], alone[sequence]), f"row {sequence} of {company}, {threads} threads"


def test_the_last_prompt_row_has_the_same_bits_with_a_decode_row_beside_it(paged: Paged, threads: int) -> None:
    prompt, other = tiny_models.random_prompt(6), tiny_models.random_prompt(20, seed=1)
    alone = paged().step({0: prompt})
    run = paged()
    run.step({1: other})
    assert torch.equal(run.step({0: prompt, 1: [3]})[: len(prompt)], alone)


def test_a_generated_row_has_the_bits_of_the_same_row_in_a_prompt(paged: Paged, threads: int) -> None:
    prompt, output = tiny_models.random_prompt(250, seed=3), tiny_models.random_prompt(12, seed=4)
    whole = paged().step({0: prompt + output})
    run = paged(seed=1)
    rows = [run.step({0: prompt})] + [run.step({0: [token]}) for token in output]
    assert torch.equal(torch.cat(rows), whole)


def test_one_thread_and_two_give_the_same_bits(paged: Paged) -> None:
    prompt = tiny_models.random_prompt(300, seed=5)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            run = paged()
            results.append(torch.cat([run.step({0: prompt}), run.step({0: [7]})]))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


@pytest.mark.parametrize("width", [1536, 100])
def test_silu_gives_an_element_the_same_bits_wherever_a_threads_share_ends(width: int) -> None:
    x = torch.randn(513, 2 * width, generator=torch.Generator().manual_seed(0)) * 4
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = silu(x[:, :width])
        for threads in (2, 3, 7):
            torch.set_num_threads(threads)
            for rows in (1, 4, 200, 244, 500, 513):
                assert torch.equal(silu(x[:rows, :width]), expected[:rows]), f"{rows} rows, {threads} threads"
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(expected, torch.nn.functional.silu(x[:, :width]))
    extremes = silu(torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e30]))
    assert extremes.tolist() == [0.0, pytest.approx(0, abs=1e-30), 0.0, 100.0, pytest.approx(1e30)]


def test_dummy_weights_are_the_same_every_time(tmp_path: Path) -> None:
    again, model = _model(tmp_path), _model(tmp_path)
    assert torch.equal(again.embedding.weight, model.embedding.weight)
    assert 0.01 < float(again.embedding.weight.std()) < 0.03
