"""Quantised products: what they give, and that their rows do not depend on each other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from agentcache.model.quantized import Int8Head, Product, QuantizedLinear, Wide, make_product
from agentcache.model.quantized_codes import to_channel_codes, to_group_codes
from agentcache_kernels.cpu.linear import PackedWeight

_SHAPES = [(576, 960), (1536, 576), (96, 80)]
_COUNTS = [*range(1, 14), 31, 33, 64, 129, 300, 513]


_WIDE = Wide(8, torch.float32)


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _product(
    kind: str, weight: Tensor, wide: Wide | None = _WIDE, *, compiled: bool | None = None
) -> tuple[Product, Tensor]:
    """The product and the weights that its codes stand for."""
    codes = to_channel_codes(weight) if kind == "int8" else to_group_codes(weight)
    return make_product(codes, wide, compiled=compiled), codes.dequantized()


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("shape", _SHAPES)
def test_a_compiled_product_has_the_bits_of_the_unpacked_weights(kind: str, shape: tuple[int, int]) -> None:
    inputs, outputs = shape
    product, weight = _product(kind, _random(outputs, inputs, seed=1), compiled=True)
    native = PackedWeight(weight)
    x = _random(40, inputs)
    for count in _COUNTS[:15]:
        assert torch.equal(product(x[:count]), native(x[:count])), f"{count} rows"
    torch.testing.assert_close(product(x), x @ weight.T, rtol=1e-4, atol=1e-4 * float((x @ weight.T).abs().max()))
    torch.testing.assert_close(product.unpacked(_WIDE), weight, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("shape", _SHAPES)
def test_torchs_operators_give_that_of_the_unpacked_weights_rounded(kind: str, shape: tuple[int, int]) -> None:
    inputs, outputs = shape
    product, meant = _product(kind, _random(outputs, inputs, seed=1), compiled=False)
    weight = product.unpacked(_WIDE)
    assert (weight - meant).abs().max() < 0.01 * meant.abs().max()
    x = _random(9, inputs).bfloat16()
    exact = x.double() @ weight.double().T
    error = (product(x.float()).double() - exact).abs()
    assert (error <= exact.abs() / 256 + 1e-3 * exact.abs().max()).all()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("shape", _SHAPES)
def test_a_row_has_the_same_bits_in_any_company(
    kind: str, shape: tuple[int, int], threads: int, compiled: bool
) -> None:
    inputs, outputs = shape
    product, _ = _product(kind, _random(outputs, inputs, seed=2), None, compiled=compiled)
    layer = QuantizedLinear([product], _random(outputs), None)
    x = _random(600, inputs, seed=3)
    torch.set_num_threads(1)
    expected = layer(x)
    torch.set_num_threads(threads)
    for count in _COUNTS:
        for begin in (0, 600 - count):
            rows = slice(begin, begin + count)
            assert torch.equal(layer(x[rows]), expected[rows]), f"{count} rows from {begin}"


def test_parts_of_different_kinds_and_a_bias_lie_one_behind_the_other() -> None:
    bias = _random(78, seed=6)
    x = _random(50, 64)
    for wide in (None, _WIDE, Wide(8, torch.bfloat16)):
        first, w1 = _product("int4", _random(48, 64, seed=4), wide)
        second, w2 = _product("int8", _random(30, 64, seed=5))
        exact = x @ torch.cat((w1, w2)).T + bias
        y = QuantizedLinear([first, second], bias, wide)(x)
        assert y.dtype == torch.float32 and y.shape == (50, 78)
        torch.testing.assert_close(y, exact, rtol=0.02, atol=0.02 * float(exact.abs().max()))


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_more_rows_than_the_narrow_ones_are_multiplied_in_floating_point(kind: str) -> None:
    product, weight = _product(kind, _random(64, 96, seed=7))
    layer = QuantizedLinear([product], None, _WIDE)
    x = _random(9, 96)
    torch.testing.assert_close(layer(x), x @ weight.T, rtol=1e-5, atol=1e-5)
    assert torch.equal(layer(x[:8]), product(x[:8]))


def test_a_packed_matrix_takes_half_a_byte_or_one_for_a_weight_and_its_scales() -> None:
    weight = _random(64, 96)
    int4, int8 = (_product(kind, weight, None, compiled=True)[0].packed.nbytes for kind in ("int4", "int8"))
    assert int4 == 64 * 96 // 2 + 64 * 96 // 32 * 4
    assert int8 == 64 * 96 + 64 * 4


@pytest.mark.parametrize("compiled", [True, False])
def test_the_best_tokens_have_float32_logits_whatever_the_company(threads: int, compiled: bool) -> None:
    weight = _random(5000, 64, seed=8)
    head = Int8Head(weight, compiled=compiled)
    hidden = _random(130, 64, seed=9) * 5
    exact = hidden @ weight.half().float().T
    logits = head(hidden)
    assert torch.equal(logits.argmax(-1), exact.argmax(-1))
    best = exact.topk(20).indices
    torch.testing.assert_close(logits.gather(1, best), exact.gather(1, best), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(logits, exact, rtol=0.02, atol=0.02 * float(exact.abs().max()))
    for count in (1, 2, 3, 5, 8, 13, 64, 129):
        assert torch.equal(head(hidden[-count:]), logits[-count:]), f"{count} rows"


def test_a_vocabulary_smaller_than_the_recomputed_part_is_all_float32() -> None:
    weight, hidden = _random(20, 64, seed=10), _random(3, 64)
    torch.testing.assert_close(Int8Head(weight)(hidden), hidden @ weight.half().float().T, rtol=1e-5, atol=1e-4)
