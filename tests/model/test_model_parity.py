"""Every served family says what Hugging Face transformers says, however its prompt is cut."""

from __future__ import annotations

import pytest
import tiny_models
import torch
from tiny_models import VARIANTS, PagedRun
from transformers import PreTrainedModel

from agentcache.model.transformer import Transformer

PROMPT = tiny_models.random_prompt(70)
CHUNKS = [len(PROMPT), 1, 7, 16]


@pytest.fixture(scope="module", params=VARIANTS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PreTrainedModel, Transformer]:
    reference = tiny_models.reference_model(request.param)
    return reference, tiny_models.load(tiny_models.save(reference, tmp_path_factory.mktemp("model")))


def test_greedy_ids_and_logprobs_equal_transformers(pair: tuple[PreTrainedModel, Transformer]) -> None:
    reference, ours = pair
    expected_ids = tiny_models.reference_greedy(reference, PROMPT, 24)
    assert len(set(expected_ids)) > 4  # a model that repeats itself would prove little
    whole = PROMPT + expected_ids
    expected = tiny_models.reference_logprobs(reference, whole)
    for chunk in CHUNKS:
        assert PagedRun(ours).greedy(PROMPT, 24, chunk) == expected_ids, f"prompt in chunks of {chunk}"
        torch.testing.assert_close(PagedRun(ours).logprobs(whole, chunk), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_model_on_torchs_operators_equals_transformers(
    variant: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reference = tiny_models.reference_model(variant)
    ours = tiny_models.load(tiny_models.save(reference, tmp_path_factory.mktemp("model")))
    got = PagedRun(ours, compiled=False).logprobs(PROMPT, 23)
    torch.testing.assert_close(got, tiny_models.reference_logprobs(reference, PROMPT), rtol=0, atol=1e-3)
    assert PagedRun(ours, compiled=False).greedy(PROMPT, 4, 23) == tiny_models.reference_greedy(reference, PROMPT, 4)


def test_prefill_and_decode_mixed_in_one_step_equal_transformers(pair: tuple[PreTrainedModel, Transformer]) -> None:
    reference, ours = pair
    first, second = tiny_models.random_prompt(33, seed=1), tiny_models.random_prompt(41, seed=2)
    run = PagedRun(ours, page_size=8)
    rows = {0: [run.step({0: first[:20]})], 1: []}
    for step in range(13):  # one sequence decodes while the other's prompt comes in threes and fours
        fed = {0: first[20 + step : 21 + step], 1: second[step * 3 : step * 3 + 3] if step < 12 else second[36:]}
        logits = run.step(fed)
        rows[0].append(logits[:1])
        rows[1].append(logits[1:])
    for sequence, ids in ((0, first), (1, second)):
        got = torch.cat(rows[sequence]).log_softmax(-1)
        torch.testing.assert_close(got, tiny_models.reference_logprobs(reference, ids), rtol=0, atol=1e-3)


@pytest.mark.parametrize("variant", ["mistral-window", "qwen2-window"])
def test_a_window_hides_what_lies_before_it(variant: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    # Guards the parity test above: with the window lost on both sides it would pass.
    reference = tiny_models.reference_model(variant)
    model = tiny_models.load(tiny_models.save(reference, tmp_path_factory.mktemp("model")))
    window = model.config.sliding_window
    assert window is not None
    sliding = [layer for layer, value in enumerate(model.config.windows) if value == window]
    assert sliding == ([0, 1, 2] if variant == "mistral-window" else [1, 2])
