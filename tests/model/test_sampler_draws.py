"""Draws: what the parameters mean, and that nothing but seed and position decides."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from agentcache.cache.tokens import PagedTokens
from agentcache.model.sampler import NonFiniteLogitsError, sample
from agentcache.model.uniform import uniform
from agentcache.request import Request, SamplingParams, Sequence, TokenLogprob

VOCAB = 1000


def sequence(
    params: SamplingParams, seed: int = 1, prompt: tuple[int, ...] = (1, 2), output: tuple[int, ...] = ()
) -> Sequence:
    request = Request("r", list(prompt), params, b"", lambda _: None)
    return Sequence(request, 0, PagedTokens([*prompt, *output], 16, b""), len(prompt), 100, seed)


def logits_for(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def tokens(logits: Tensor, *sequences: Sequence) -> list[int]:
    return [entry.token for entry in sample(logits, list(sequences))]


def histogram(logits: Tensor, params: SamplingParams, draws: int = 4000) -> Tensor:
    """How often each token is drawn from one row, over many seeds."""
    drawn = tokens(logits.expand(draws, -1), *(sequence(params, seed) for seed in range(draws)))
    return torch.bincount(torch.tensor(drawn), minlength=logits.shape[-1]) / draws


def nucleus(logits: Tensor, params: SamplingParams) -> Tensor:
    """The filtered distribution, written out on one row: top_k, then top_p, then min_p."""
    probs = (logits.double() / params.temperature).softmax(-1)
    order = probs.argsort(descending=True)
    kept = order[: params.top_k or None]
    shares = probs[kept] / probs[kept].sum()
    kept = kept[(shares.cumsum(0) - shares) < params.top_p]
    kept = kept[probs[kept] >= params.min_p * probs.max()]
    result = torch.zeros_like(probs)
    result[kept] = probs[kept]
    return result / result.sum()


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.5),
        SamplingParams(top_k=3),
        SamplingParams(top_k=500, temperature=2.0),
        SamplingParams(top_p=0.8),
        SamplingParams(top_p=0.999, temperature=3.0),
        SamplingParams(min_p=0.1),
        SamplingParams(min_p=1e-4, temperature=3.0),
        SamplingParams(top_k=20, top_p=0.7, min_p=0.05, temperature=1.5),
        SamplingParams(top_k=400, top_p=0.9, temperature=3.0),
    ],
)
def test_draws_follow_the_filtered_distribution(params: SamplingParams) -> None:
    logits = logits_for(1)[0]
    expected = nucleus(logits, params)
    drawn = histogram(logits, params)
    assert not drawn[expected == 0].any(), "a token outside the filters was drawn"
    # Total variation of 4,000 draws from a distribution with at most 1,000 outcomes stays well below this.
    spread = math.sqrt(int((expected > 0).sum()) / 4000)
    assert (drawn - expected).abs().sum() / 2 < 0.06 + 0.5 * spread
    top = expected.argmax()
    assert abs(drawn[top] - expected[top]) < 4 * math.sqrt(0.25 / 4000)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=1e-6),
        SamplingParams(temperature=0.0, top_k=5, top_p=0.3, min_p=0.2, seed=9),
        SamplingParams(temperature=1.0, top_p=1e-9),
        SamplingParams(temperature=1.0, top_k=1),
        SamplingParams(temperature=1.0, min_p=1.0),
        SamplingParams(temperature=1e-5),
        SamplingParams(temperature=0.0, logit_bias=tuple((token, -100.0) for token in range(VOCAB))),
    ],
)
def test_greedy_by_whatever_road(params: SamplingParams) -> None:
    logits = logits_for(20)
    assert tokens(logits, *(sequence(params, seed) for seed in range(20))) == logits.argmax(-1).tolist()


def test_company_order_and_width_never_change_a_draw() -> None:
    kinds = [
        SamplingParams(),
        SamplingParams(temperature=0.0),
        SamplingParams(top_p=0.95, temperature=4.0),
        SamplingParams(top_k=40),
        SamplingParams(presence_penalty=1.0),
        SamplingParams(min_p=0.01, logit_bias=((3, 5.0),)),
        SamplingParams(repetition_penalty=1.3, logprobs=2),
    ]
    logits = logits_for(21)
    everyone = [sequence(kinds[i % 7], seed=i, output=(i, i + 1) * (i % 3)) for i in range(21)]
    together = tokens(logits, *everyone)
    alone = [tokens(logits[i : i + 1], everyone[i])[0] for i in range(21)]
    order = torch.randperm(21).tolist()
    shuffled = tokens(logits[order], *(everyone[i] for i in order))
    assert together == alone
    assert shuffled == [together[i] for i in order]


def test_a_draw_depends_on_seed_and_position() -> None:
    flat = torch.zeros(300, VOCAB)
    by_seed = tokens(flat, *(sequence(SamplingParams(), seed) for seed in range(300)))
    by_position = tokens(flat, *(sequence(SamplingParams(), 5, output=(0,) * i) for i in range(300)))
    for drawn in (by_seed, by_position):
        assert len(set(drawn)) > 200
    assert by_seed == tokens(flat, *(sequence(SamplingParams(), seed) for seed in range(300)))
    assert uniform(-1, 3) == uniform(2**64 - 1, 3)
    assert uniform(2**70 + 1, 0) == uniform(1, 0) != uniform(1, 1)


def test_presence_and_frequency_look_at_the_output_only() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [5, 6, 7]] = torch.tensor([10.0, 9.0, 8.0])
    greedy = {"temperature": 0.0}
    prompt, output = (5, 5, 5), (6, 6)
    assert tokens(logits, sequence(SamplingParams(**greedy, presence_penalty=2.0), 1, prompt, output)) == [5]
    assert tokens(logits, sequence(SamplingParams(**greedy, presence_penalty=2.0), 1, (), (5,))) == [6]
    assert tokens(logits, sequence(SamplingParams(**greedy, presence_penalty=0.9), 1, (), (5, 5, 5))) == [5]
    assert tokens(logits, sequence(SamplingParams(**greedy, frequency_penalty=0.9), 1, (), (5, 5, 5))) == [6]
    assert tokens(logits, sequence(SamplingParams(**greedy, frequency_penalty=-3.0), 1, (), (7,))) == [7]


def test_repetition_looks_at_prompt_and_output_and_respects_the_sign() -> None:
    logits = torch.full((1, VOCAB), -20.0)
    logits[0, [5, 6, 7]] = torch.tensor([10.0, 9.0, 8.0])
    greedy = SamplingParams(temperature=0.0, repetition_penalty=1.2)
    assert tokens(logits, sequence(greedy, 1, (5,))) == [6]
    assert tokens(logits, sequence(greedy, 1, (5,), (6,))) == [5]
    negative = logits - 30
    assert tokens(negative, sequence(greedy, 1, (5,))) == [6]
    assert tokens(logits, sequence(SamplingParams(temperature=0.0, repetition_penalty=0.5), 1, (7,))) == [7]


def test_bias_moves_one_token_and_ignoring_the_end_bans_nothing() -> None:
    logits = logits_for(1)
    worst = int(logits.argmin())
    assert tokens(logits, sequence(SamplingParams(temperature=0.0, logit_bias=((worst, 100.0),)))) == [worst]
    best = int(logits.argmax())
    assert tokens(logits, sequence(SamplingParams(temperature=0.0, logit_bias=((best, -100.0),)))) != [best]
    assert tokens(logits, sequence(SamplingParams(temperature=0.0, ignore_eos=True))) == [best]


def test_banned_tokens_stay_banned_in_any_mix() -> None:
    logits = logits_for(6)
    logits[:, 10:] = -math.inf
    kinds = [
        SamplingParams(temperature=1e6),
        SamplingParams(temperature=0.0, presence_penalty=-2.0),
        SamplingParams(repetition_penalty=1.5, temperature=1e6, logprobs=3),
        SamplingParams(temperature=1e6, top_p=0.9999),
        SamplingParams(temperature=1e6, top_k=500, logit_bias=((20, 100.0),)),
        SamplingParams(temperature=1e6, min_p=1e-9, frequency_penalty=2.0),
    ]
    for seed in range(50):
        everyone = [sequence(params, seed, prompt=(1, 500), output=(30, 40)) for params in kinds]
        entries = sample(logits, everyone)
        assert all(entry.token < 10 for entry in entries)
        assert all(math.isfinite(logprob) for _, logprob in entries[2].top)


def test_a_huge_temperature_is_nearly_flat() -> None:
    drawn = histogram(logits_for(1)[0], SamplingParams(temperature=1e6))
    assert (drawn > 0).sum() > 900
    assert drawn.max() < 0.01


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize(
    "params", [SamplingParams(temperature=0.0), SamplingParams(top_p=0.9), SamplingParams(logprobs=1)]
)
def test_logits_that_are_no_numbers_name_their_sequence(poison: float, params: SamplingParams) -> None:
    logits = logits_for(3)
    logits[1, 77] = poison
    sequences = [sequence(params) for _ in range(3)]
    with pytest.raises(
        NonFiniteLogitsError, match="request r, sequence 0: got logits that are not finite at position 2"
    ) as caught:
        sample(logits, sequences)
    assert caught.value.sequence is sequences[1]


def test_reported_figures_are_the_models_own() -> None:
    logits = logits_for(4)
    expected = logits.log_softmax(-1)
    kinds = [
        SamplingParams(temperature=0.0, logprobs=0),
        SamplingParams(temperature=2.0, top_k=2, logprobs=3, logit_bias=((4, 50.0),)),
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.0, logprobs=5, presence_penalty=1.5),
    ]
    entries = sample(logits, [sequence(params, output=(1, 2)) for params in kinds])
    for row, (entry, params) in enumerate(zip(entries, kinds)):
        if params.logprobs is None:
            assert math.isnan(entry.logprob)
            assert entry.top == ()
            continue
        assert entry.logprob == pytest.approx(expected[row, entry.token].item(), abs=1e-5)
        best = expected[row].topk(params.logprobs)
        assert [token for token, _ in entry.top] == best.indices.tolist()
        assert [logprob for _, logprob in entry.top] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_more_alternatives_than_tokens_gives_them_all() -> None:
    [entry] = sample(torch.tensor([[0.0, 1.0, 2.0]]), [sequence(SamplingParams(temperature=0.0, logprobs=20))])
    assert [token for token, _ in entry.top] == [2, 1, 0]


def test_nobody_samples() -> None:
    nothing: list[TokenLogprob] = sample(torch.empty(0, VOCAB), [])
    assert nothing == []


def test_alternatives_do_not_depend_on_how_many_a_neighbour_asks_for() -> None:
    """Many logits are equal: which of them are reported must not change with the company."""
    logits = (logits_for(3) / 3).round()
    few, none, many = (SamplingParams(temperature=0, logprobs=count) for count in (4, 0, 300))
    (alone,) = sample(logits[:1], [sequence(few)])
    together = sample(logits, [sequence(few), sequence(many), sequence(none)])
    assert together[0] == alone
    assert [len(entry.top) for entry in together] == [4, 300, 0]
