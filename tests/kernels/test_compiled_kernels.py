"""Compiled products and row operations: right, a row's bits its own, and the same on every kind of vector register."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import llvmlite.binding
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agentcache.model.layers import rms_norm, silu
from agentcache.model.rope import rotate
from agentcache_kernels import make_attention_batch, paged_attention
from agentcache_kernels.attention import turned
from agentcache_kernels.cpu.linear import PANEL, PackedInt4, PackedInt8, PackedWeight
from agentcache_kernels.cpu.rows import HeadNorm, Turns, add_rms_norm, rotate_and_write, silu_and_mul
from agentcache_kernels.cpu.target import target

SHAPES = [(1, 1), (PANEL, 64), (PANEL + 1, 70), (3 * PANEL - 5, 513), (7, 1100), (960, 576)]


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_is_right_and_its_rows_do_not_depend_on_each_other(shape: tuple[int, int], threads: int) -> None:
    weight, x = _random(*shape), _random(300, shape[1], seed=1)
    packed = PackedWeight(weight)
    y = packed(x)
    exact = x.double() @ weight.double().T
    torch.testing.assert_close(y.double(), exact, rtol=1e-4, atol=1e-4 * float(exact.abs().max()))
    torch.set_num_threads(1)
    for count in (*range(1, 33), 127, 299):
        assert torch.equal(packed(x[:count]), y[:count]), f"{count} rows"
        assert torch.equal(packed(x[-count:]), y[-count:]), f"the last {count} rows"


def test_weights_come_back_as_they_were_given() -> None:
    for shape in SHAPES:
        weight = _random(*shape)
        packed = PackedWeight(weight)
        assert torch.equal(packed.unpacked(), weight)
        numbers = torch.randint(shape[0], (20,))
        assert torch.equal(packed.rows(numbers), weight[numbers])


def test_no_rows_and_rows_that_do_not_lie_in_one_piece() -> None:
    packed, x = PackedWeight(_random(40, 24)), _random(10, 48)
    assert packed(x[:0, :24]).shape == (0, 40)
    assert torch.equal(packed(x[:, 24:]), packed(x[:, 24:].contiguous()))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 70), st.integers(1, 5), st.integers(1, 40), st.integers(0, 2**31))
def test_codes_stand_for_weights_in_products_of_any_size(outputs: int, groups: int, rows: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs = 32 * groups
    x = torch.randn(rows, inputs, generator=generator)
    codes = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8, generator=generator)
    scales = torch.rand(outputs, generator=generator)
    assert torch.equal(PackedInt8(codes, scales)(x), PackedWeight(codes * scales[:, None])(x))
    codes = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8, generator=generator)
    scales, leasts = (torch.randn(outputs, groups, generator=generator).half() for _ in range(2))
    weight = codes.view(outputs, groups, 32) * scales.float()[..., None] + leasts.float()[..., None]
    assert torch.equal(PackedInt4(codes, scales, leasts)(x), PackedWeight(weight.flatten(1))(x))


@pytest.mark.parametrize("size", [(6, 576), (200, 576), (5, 70), (3, 7), (1, 1), (0, 8)])
def test_row_operations_do_what_torch_does(size: tuple[int, int], threads: int) -> None:
    rows, width = size
    hidden, delta, weight = _random(rows, width), _random(rows, width, seed=1), _random(width, seed=2)
    added = hidden.clone()
    normed = add_rms_norm(added, delta, weight, 1e-5)
    assert torch.equal(added, hidden + delta)
    torch.testing.assert_close(normed, rms_norm(hidden + delta, weight, 1e-5))
    assert torch.equal(add_rms_norm(added, None, weight, 1e-5), normed)
    gate_up = 6 * _random(rows, 2 * width, seed=3)
    gated = silu_and_mul(gate_up)
    torch.testing.assert_close(gated, silu(gate_up[:, :width]) * gate_up[:, width:], rtol=2e-6, atol=1e-30)
    for row in range(0, rows, 17):  # alone, a row has the same bits
        assert torch.equal(add_rms_norm(added[row : row + 1].clone(), None, weight, 1e-5), normed[row : row + 1])
        assert torch.equal(silu_and_mul(gate_up[row : row + 1]), gated[row : row + 1])


def test_the_gate_of_what_is_extreme_or_no_number() -> None:
    gate = torch.tensor([[-1e30, -1000.0, -100.0, 0.0, 100.0, 1e30, float("nan"), float("-inf"), float("inf")]])
    gated = silu_and_mul(torch.cat((gate, torch.ones_like(gate)), 1))[0].tolist()
    assert gated[:4] == pytest.approx([0, 0, 0, 0], abs=1e-7) and gated[4:6] == [100.0, pytest.approx(1e30)]
    assert gated[6] != gated[6] and gated[8] == float("inf")


@pytest.mark.parametrize(("head_dim", "page_size"), [(64, 16), (20, 4), (2, 1), (96, 32)])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("rows", [1, 9, 300])
def test_queries_and_keys_are_turned_and_stored(head_dim: int, page_size: int, norm: bool, rows: int) -> None:
    q_heads, kv_heads, num_pages = 6, 2, -(-rows // page_size) + 2
    qkv = _random(rows, (q_heads + 2 * kv_heads) * head_dim)
    cos, sin = _random(50, head_dim // 2, seed=1), _random(50, head_dim // 2, seed=2)
    positions = torch.randint(50, (rows,))
    slots = torch.randperm(num_pages * page_size)[:rows]
    slots[rows // 2] = -1
    head_norm = HeadNorm(_random(q_heads + kv_heads, head_dim, seed=3), 1e-6) if norm else None
    pools = [torch.full((kv_heads, num_pages, page_size, head_dim), 7.0) for _ in range(2)]
    keys, values = turned(pools[0]), pools[1].clone()
    queries = rotate_and_write(qkv.clone(), Turns.of(cos, sin, positions, slots), keys, values, head_norm)

    heads = qkv.view(rows, -1, head_dim)
    turning = heads[:, : q_heads + kv_heads]
    if head_norm is not None:
        turning = rms_norm(turning, head_norm.weight, head_norm.eps)
    c, s = cos[positions], sin[positions]
    expected = rotate(turning, torch.cat((c, c), -1)[:, None], torch.cat((-s, s), -1)[:, None])
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            place = (slice(None), slot // page_size, slot % page_size)
            pools[0][place], pools[1][place] = expected[row, q_heads:], heads[row, q_heads + kv_heads :]
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if norm else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(queries, expected[:, :q_heads], **tolerance)
    torch.testing.assert_close(keys, pools[0], **tolerance)
    assert torch.equal(values, pools[1])


def test_the_first_kernel_leaves_torchs_number_of_threads_as_it_was() -> None:
    """numba and torch share OpenMP, and numba begins by asking for every core."""
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from agentcache_kernels.cpu.rows import add_rms_norm\n"
        "add_rms_norm(torch.ones(2, 8), None, torch.ones(8), 1e-5)\n"
        "import numba; print(torch.get_num_threads(), numba.get_num_threads())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "1"], done.stderr


def _everything() -> str:
    """A digest of the bits that every kernel gives."""
    digest = hashlib.sha256()

    def add(tensor: Tensor) -> None:
        digest.update(tensor.contiguous().numpy().tobytes())

    for outputs, inputs in ((70, 96), (33, 1056)):
        for rows in (1, 5, 23):
            x = _random(rows, inputs, seed=rows)
            add(PackedWeight(_random(outputs, inputs, seed=9))(x))
            codes = torch.randint(-8, 8, (outputs, inputs), generator=torch.Generator().manual_seed(1))
            halves = _random(outputs, inputs // 32, seed=4).half()
            add(PackedInt8(codes.to(torch.int8), _random(outputs, seed=3).abs())(x))
            add(PackedInt4((codes + 8).to(torch.uint8), halves, halves)(x))
    add(add_rms_norm(_random(4, 100), _random(4, 100, seed=1), _random(100), 1e-5))
    add(silu_and_mul(_random(4, 100)))
    for head_dim, page_size in ((64, 16), (40, 8), (36, 4), (7, 3)):
        tables = [list(range(100)), [*range(40), *range(100, 160)]]
        batch = make_attention_batch([1, 1, 20], [290, 299, 60], [*tables, tables[0]], page_size, torch.device("cpu"))
        pools = (_random(2, 160, page_size, head_dim, seed=seed) for seed in (5, 6))
        keys, values = pools
        q = _random(22, 6, head_dim, seed=7)
        add(paged_attention(q, turned(keys), values, batch, scale=0.2, window=None if page_size != 8 else 37))
    return digest.hexdigest()


def test_narrower_registers_give_the_same_bits() -> None:
    """As on a processor without AVX-512; where there is none, the two are one."""
    features = llvmlite.binding.get_host_cpu_features()
    narrow = {name: there and "avx512" not in name for name, there in features.items()}
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": ",".join(f"{'+' if there else '-'}{name}" for name, there in narrow.items()),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run([sys.executable, __file__], check=False, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["8", _everything()], done.stderr


if __name__ == "__main__":
    print(target().lanes, _everything())
