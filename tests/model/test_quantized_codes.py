"""Codes stand for the weights they were made from; those of a GGUF file are taken as they are."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from torch import Tensor

from agentcache.model.quantized_codes import GroupCodes, to_channel_codes, to_group_codes
from agentcache.model.quantized_gguf import group_codes
from agentcache.model.quantized_store import StoredGroups, save_groups


@pytest.fixture
def weight() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(48, 96, generator=generator) * torch.logspace(-4, 1, 48)[:, None]
    rows[5] = 0
    rows[6, 32:64] = 0.7
    return rows


def test_int8_is_half_a_step_from_every_weight(weight: Tensor) -> None:
    codes = to_channel_codes(weight)
    assert ((codes.dequantized() - weight).abs() <= 0.501 * codes.scales[:, None]).all()
    assert codes.codes.dtype == torch.int8 and int(codes.codes.min()) >= -127
    assert (codes.dequantized()[5] == 0).all()


def test_int4_is_half_a_step_from_every_weight(weight: Tensor) -> None:
    codes = to_group_codes(weight)
    error = (codes.dequantized() - weight).abs().unflatten(1, (-1, 32))
    assert (error <= 0.56 * codes.scales.float()[..., None] + 0.002 * weight.abs().amax()).all()
    assert (error <= 0.56 * codes.scales.float()[..., None]).float().mean() > 0.95
    assert (codes.dequantized()[5] == 0).all()
    torch.testing.assert_close(codes.dequantized()[6, 32:64], torch.full((32,), 0.7), rtol=4e-3, atol=0)


def test_int4_codes_survive_their_bytes_and_their_file(weight: Tensor, tmp_path: Path) -> None:
    codes = to_group_codes(weight)
    save_groups(tmp_path, {"one": codes, "two.weight": to_group_codes(-weight)})
    stored = StoredGroups(tmp_path)
    assert stored.names == {"one", "two.weight"}
    back = stored.codes("one")
    assert codes.to_bytes().shape == (48, 48)
    assert torch.equal(back.codes, codes.codes)
    assert torch.equal(back.scales, codes.scales) and torch.equal(back.leasts, codes.leasts)
    assert StoredGroups(tmp_path / "nowhere").names == StoredGroups(None).names == frozenset()


def _blocks(kind: Kind, weight: Tensor) -> np.ndarray:
    if kind != Kind.Q4_K:
        return gguf.quantize(weight.numpy(), kind)
    # The package cannot pack this type: any bytes are a valid block but for its two float16 numbers.
    count, size = weight.shape[1] // 256, gguf.GGML_QUANT_SIZES[kind][1]
    blocks = np.random.default_rng(0).integers(0, 256, (weight.shape[0], count, size), dtype=np.uint8)
    blocks[..., :4] = np.array([0.01, 0.003], np.float16).view(np.uint8)
    return blocks.reshape(weight.shape[0], -1)


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q4_K])
def test_the_4_bit_types_of_gguf_keep_their_codes(kind: Kind) -> None:
    weight = torch.randn(16, 512, generator=torch.Generator().manual_seed(1)) * 0.1
    blocks = _blocks(kind, weight)
    exact = torch.from_numpy(gguf.dequantize(blocks, kind).copy())
    codes = group_codes(torch.from_numpy(blocks.copy()), kind)
    assert codes is not None
    if kind != Kind.Q4_K:
        assert torch.equal(codes.dequantized(), exact)
        return
    # Scales and leasts are rounded to 11 bits.
    bound = (15 * codes.scales.float().abs() + codes.leasts.float().abs()) / 2048
    assert ((codes.dequantized() - exact).abs().unflatten(1, (-1, 32)) <= bound[..., None]).all()


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q6_K, Kind.F16, Kind.Q5_1])
def test_other_types_have_no_such_codes(kind: Kind) -> None:
    assert group_codes(torch.zeros(2, 420, dtype=torch.uint8), kind) is None


def test_the_code_0_is_the_least_weight_of_its_group() -> None:
    one = torch.ones(1, 1).half()
    assert GroupCodes(torch.zeros(1, 32, dtype=torch.uint8), one, one * 3).dequantized().tolist() == [[3.0] * 32]
