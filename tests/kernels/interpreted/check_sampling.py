"""The sampling kernel against its twin, which sorts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from agentcache.model.uniform import uniform
from agentcache_kernels.gpu import Draws, sample_tokens
from agentcache_kernels.gpu.sampling import sample_twin


def draws(rows: int, device: torch.device, **same: float) -> Draws:
    """Every combination in turn, or the same for all rows where ``same`` says so."""

    def column(name: str, values: list[float], dtype: torch.dtype) -> Tensor:
        chosen = [same[name]] if name in same else values
        return torch.tensor([chosen[i % len(chosen)] for i in range(rows)], dtype=dtype, device=device)

    places = torch.arange(rows, device=device)
    return Draws(
        column("temperature", [0.7, 1.0, 1.4], torch.float32),
        column("top_k", [0, 1, 5, 40, 10**6], torch.int32),
        column("top_p", [1.0, 0.9, 0.5, 0.01], torch.float32),
        column("min_p", [0.0, 0.0, 0.02, 0.2, 0.0, 0.0, 0.0], torch.float32),
        places * 7919 - 5,
        places * 13,
    )


def sampled(logits: Tensor, asked: Draws) -> tuple[Tensor, Tensor]:
    ours, theirs = (torch.full((len(logits),), 77777, dtype=torch.int32, device=logits.device) for _ in range(2))
    sample_tokens(logits, asked, ours).run()
    sample_twin(logits, asked, theirs)
    return ours, theirs


def test_every_combination_of_filters_draws_what_sorting_draws(device: torch.device) -> None:
    logits = torch.randn(30, 700, generator=torch.Generator().manual_seed(0)).to(device) * 3
    logits[::5] = logits[::5].round()  # many equal logits: the lower id counts as the better one
    logits[7, ::2] = -math.inf
    logits[8, 5:] = -math.inf
    ours, theirs = sampled(logits, draws(30, device))
    assert torch.equal(ours, theirs)


@pytest.mark.kernels
@pytest.mark.parametrize("vocab", [1, 2, 511, 512, 513, 5000, 49152])
def test_every_size_of_vocabulary(vocab: int, device: torch.device) -> None:
    logits = torch.randn(24, vocab, generator=torch.Generator().manual_seed(vocab)).to(device) * 4
    ours, theirs = sampled(logits, draws(24, device))
    assert torch.equal(ours, theirs)


def test_a_filter_that_ends_among_equals_keeps_the_lower_ids(device: torch.device) -> None:
    asked = draws(16, device, temperature=1.0, top_p=1.0, min_p=0.0)
    asked.top_ks[:] = torch.tensor([3, 0], device=device).repeat(8)
    asked.top_ps[1::2] = 0.099  # of 40 equals: the mass before the fifth is more
    ours, theirs = sampled(torch.zeros(16, 40, device=device), asked)
    assert torch.equal(ours, theirs)
    assert set(ours[::2].tolist()) == {0, 1, 2}
    assert set(ours[1::2].tolist()) == {0, 1, 2, 3}


def test_temperature_zero_takes_the_best_token_and_the_first_of_equals(device: torch.device) -> None:
    logits = torch.randn(4, 300, device=device)
    logits[1, [17, 290]] = 9.0
    logits[2] = 0.0
    ours, theirs = sampled(logits, draws(4, device, temperature=0.0))
    assert ours.tolist() == logits.argmax(1).tolist()
    assert ours.tolist() == theirs.tolist()
    assert ours[1:3].tolist() == [17, 0]


def test_rows_with_nothing_to_draw_from_give_minus_one(device: torch.device) -> None:
    logits = torch.zeros(4, 300, device=device)
    logits[0, 299] = math.nan
    logits[1] = -math.inf
    logits[2, 4] = math.inf
    ours, theirs = sampled(logits, draws(4, device))
    assert ours[:3].tolist() == [-1, -1, -1]
    assert ours[3] >= 0
    assert torch.equal(ours, theirs)


def test_a_draw_depends_on_seed_and_position_alone(device: torch.device) -> None:
    logits = torch.randn(1, 300, device=device).expand(6, -1).contiguous()
    asked = draws(6, device, temperature=1.0, top_k=0, top_p=0.95, min_p=0.0)
    asked.seeds[:] = torch.tensor([5, 5, 5, 6, 5, -1], device=device)
    asked.positions[:] = torch.tensor([9, 9, 10, 9, 9, 9], device=device)
    tokens, _ = sampled(logits, asked)
    alone = torch.empty(1, dtype=torch.int32, device=device)
    one = Draws(*(getattr(asked, name)[4:5] for name in Draws.__slots__))
    sample_tokens(logits[4:5], one, alone).run()
    assert tokens[0] == tokens[1] == tokens[4] == alone[0]
    assert len(set(tokens.tolist())) > 1


def test_padding_behind_the_vocabulary_is_never_drawn(device: torch.device) -> None:
    padded = torch.full((12, 320), 1e4, device=device)
    padded[:, :300] = torch.randn(12, 300, device=device)
    ours, theirs = sampled(padded[:, :300], draws(12, device))
    assert torch.equal(ours, theirs)
    assert (ours < 300).all()


def test_uniform_numbers_are_those_of_the_processor_s_sampler(device: torch.device) -> None:
    """With equal logits the number drawn is the token, cut to eight bits."""
    asked = draws(16, device, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    ours, _ = sampled(torch.zeros(16, 256, device=device), asked)
    numbers = [uniform(int(seed), int(place)) for seed, place in zip(asked.seeds, asked.positions)]
    assert ours.tolist() == [int(number * 256) for number in numbers]


def test_logits_of_another_type_are_refused(device: torch.device) -> None:
    with pytest.raises(ValueError, match="expected float32 rows"):
        sample_tokens(torch.zeros(1, 8, dtype=torch.float16, device=device), draws(1, device), torch.zeros(1))
