"""Rotary writes, page copies, norms and SiLU against their twins."""

from __future__ import annotations

import math

import pytest
import torch
from kernel_cases import close
from torch import Tensor

from agentcache_kernels import copy_pages
from agentcache_kernels.gpu import PagePool, RotaryInputs, copy_waves, page_copy, rms_norm, rotary_write, silu_mul
from agentcache_kernels.gpu.page_copy import page_copy_twin
from agentcache_kernels.gpu.rms_norm import rms_norm_twin
from agentcache_kernels.gpu.rotary_write import rotary_write_twin
from agentcache_kernels.gpu.silu_mul import silu_mul_twin

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
HEADS = [(1, 1), (4, 2), (7, 1), (9, 3), (32, 8)]
HEAD_DIMS = [16, 64, 72, 80, 96, 112, 128, 192, 256]


def tolerance(dtype: torch.dtype) -> float:
    return 1e-5 if dtype == torch.float32 else 2e-2


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("index", range(len(HEAD_DIMS)))
def test_rotary_write_fills_its_slots_and_no_others(index: int, normed: bool, device: torch.device) -> None:
    (q_heads, kv_heads), head_dim, dtype = HEADS[index % 5], HEAD_DIMS[index], DTYPES[index % 3]
    slots = torch.tensor([7, -1, 39, 0, -1, 16], device=device)
    positions = torch.tensor([3, 0, 19, 4, 5, 19], device=device)
    wide = torch.randn(6, (q_heads + 2 * kv_heads) * head_dim + 32, device=device).to(dtype)
    heads = wide[:, 16:-16].unflatten(1, (-1, head_dim))  # rows lie apart
    angles = torch.randn(20, head_dim // 2, device=device)
    norm = torch.randn(q_heads + kv_heads, head_dim, device=device).to(dtype) if normed else None
    inputs = RotaryInputs(heads, angles.cos().to(dtype), angles.sin().to(dtype), positions, slots, norm, 1e-5)
    results = []
    for write in (lambda *a: rotary_write(*a).run(), rotary_write_twin):
        q_out = torch.empty((6, q_heads, head_dim), dtype=dtype, device=device)
        pages = [torch.full((kv_heads, 5, 8, head_dim), 1e4, dtype=dtype, device=device) for _ in range(2)]
        write(inputs, q_out, *pages)
        results.append((q_out, *pages))
    for ours, theirs in zip(*results):
        close(ours, theirs, tolerance(dtype))
    untouched = torch.ones(40, dtype=torch.bool, device=device)
    untouched[slots[slots >= 0]] = False
    for pages in results[0][1:]:
        assert (pages.flatten(1, 2)[:, untouched] == 1e4).all()
    values = heads[:, q_heads + kv_heads :]
    assert torch.equal(results[0][2].flatten(1, 2)[:, slots[0]], values[0])


def test_rotary_write_of_nothing_launches_nothing(device: torch.device) -> None:
    empty = torch.empty(0, dtype=torch.int64, device=device)
    table = torch.ones(4, 8, device=device)
    inputs = RotaryInputs(torch.empty(0, 4, 16, device=device), table, table, empty, empty)
    pages = torch.zeros(1, 2, 8, 16, device=device)
    rotary_write(inputs, torch.empty(0, 2, 16, device=device), pages, pages).run()
    assert not pages.any()


def pool(device: torch.device, dtype: torch.dtype, pages: int, seed: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn((2, pages, 8, 24), generator=random).to(device, dtype) for _ in range(4)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_inside_a_store_are_as_if_made_in_order(dtype: torch.dtype, device: torch.device) -> None:
    copies = [(0, 5, 3), (5, 6, 8), (1, 0, 8), (2, 7, 1), (7, 2, 8), (3, 4, 0), (3, 5, 2)]
    ours, theirs = pool(device, dtype, 8, 1), pool(device, dtype, 8, 1)
    for tensors in (ours, theirs):
        tensors[0][:, 5, 3:] = math.nan
    waves = copy_waves(copies)
    assert [copy for wave in waves for copy in wave] == copies
    assert len(waves) == 3
    store = PagePool.of(ours, device)
    for wave in waves:
        page_copy(store, store, wave).run()
    for k_pages, v_pages in zip(theirs[::2], theirs[1::2]):
        copy_pages(k_pages, v_pages, copies)
    for one, other in zip(ours, theirs):
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def test_pages_are_swapped_to_a_store_of_another_size_and_back(device: torch.device) -> None:
    ours, host = pool(device, torch.bfloat16, 6, 1), pool(device, torch.bfloat16, 3, 2)
    before = [tensor.clone() for tensor in ours]
    expected = [tensor.clone() for tensor in host]
    store, lower = PagePool.of(ours, device), PagePool.of(host, device)
    out = [(4, 1, 8), (0, 2, 5)]
    page_copy(store, lower, out).run()
    page_copy_twin(PagePool.of(before, device), PagePool.of(expected, device), out)
    for one, other in zip(host, expected):
        assert torch.equal(one, other)
    for tensor in ours:
        tensor[:, [0, 4]] = math.nan
    page_copy(lower, store, [(1, 4, 8), (2, 0, 5)]).run()
    for one, other in zip(ours, before):
        assert torch.equal(one[:, 4], other[:, 4])
        assert torch.equal(one[:, 0, :5], other[:, 0, :5])
        assert one[:, 0, 5:].isnan().all()
    page_copy(store, store, []).run()


def test_pages_that_lie_one_after_another_are_scattered_over_tensors(device: torch.device) -> None:
    """How a page travels: all tensors' parts of it in one piece."""
    ours, before = (pool(device, torch.float16, 5, 3) for _ in range(2))
    staged = torch.zeros(3, 4, 2, 8, 24, dtype=torch.float16, device=device)
    room = PagePool.of([staged[:, t].transpose(0, 1) for t in range(4)], device)
    store = PagePool.of(ours, device)
    page_copy(store, room, [(4, 1, 8), (2, 0, 8)]).run()
    assert torch.equal(staged[1], torch.stack([tensor[:, 4] for tensor in before]))
    assert not staged[2].any()
    page_copy(room, store, [(1, 0, 8)]).run()
    for one, other in zip(ours, before):
        assert torch.equal(one[:, 0], other[:, 4])
        assert torch.equal(one[:, 1:], other[:, 1:])


def test_stores_that_do_not_fit_are_refused(device: torch.device) -> None:
    store = PagePool.of(pool(device, torch.float32, 3, 1), device)
    with pytest.raises(ValueError, match="expected the same but for the number of pages"):
        page_copy(store, PagePool.of([torch.zeros(2, 3, 8, 16, device=device)], device), [(0, 1, 1)])
    with pytest.raises(ValueError, match="expected tensors of one shape, laid out alike"):
        PagePool.of([store.tensors[0], store.tensors[0][:, :2]], device)
    with pytest.raises(ValueError, match="expected the slots of a page in one piece"):
        PagePool.of([torch.zeros(2, 3, 8, 32, device=device)[..., :16]], device)
    with pytest.raises(ValueError, match="expected multiples of 16"):
        PagePool.of([torch.zeros(33, device=device)[1:].view(1, 1, 2, 16)], device)


@pytest.mark.parametrize("width", [1, 576, 1000, 4097])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("with_residual", [False, True])
def test_rms_norm_adds_and_normalises(
    width: int, dtype: torch.dtype, with_residual: bool, device: torch.device
) -> None:
    x = torch.randn(5, width + 7, device=device).to(dtype)[:, :width]
    weight = torch.randn(width, device=device).to(dtype)
    residual = torch.randn(5, width, device=device).to(dtype) if with_residual else None
    twin_residual = None if residual is None else residual.clone()
    out, expected = (torch.empty(5, width, dtype=dtype, device=device) for _ in range(2))
    rms_norm(x, weight, residual, out, eps=1e-5).run()
    rms_norm_twin(x, weight, twin_residual, expected, eps=1e-5)
    close(out, expected, tolerance(dtype))
    if residual is not None:
        assert torch.equal(residual, twin_residual)
    alone = torch.empty_like(out[3:4])
    if residual is None:
        rms_norm(x[3:4], weight, None, alone, eps=1e-5).run()
        assert torch.equal(alone, out[3:4])


def test_a_row_of_nan_leaves_other_rows_alone(device: torch.device) -> None:
    x = torch.randn(3, 64, device=device)
    clean, out = torch.empty_like(x), torch.empty_like(x)
    weight = torch.ones(64, device=device)
    rms_norm(x, weight, None, clean, eps=1e-6).run()
    x[1] = math.nan
    rms_norm(x, weight, None, out, eps=1e-6).run()
    assert torch.equal(out[::2], clean[::2])
    assert out[1].isnan().all()


@pytest.mark.parametrize("width", [1, 255, 257, 700])
@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_and_multiply(width: int, dtype: torch.dtype, device: torch.device) -> None:
    gate_up = torch.randn(4, 2 * width + 3, device=device).to(dtype)[:, : 2 * width] * 4
    gate_up[0, 0] = -200.0
    out, expected = (torch.empty(4, width, dtype=dtype, device=device) for _ in range(2))
    silu_mul(gate_up, out).run()
    silu_mul_twin(gate_up, expected)
    close(out, expected, tolerance(dtype))
    silu_mul(gate_up[:0], out[:0]).run()


def test_mistakes_are_named(device: torch.device) -> None:
    with pytest.raises(ValueError, match=r"got \[2, 6\], expected \[2, 8\]"):
        silu_mul(torch.zeros(2, 6, device=device), torch.zeros(2, 4, device=device))
    wide = torch.zeros(1, 65537, device=device)
    with pytest.raises(ValueError, match="got rows of 65537"):
        rms_norm(wide, wide[0], None, wide, eps=1e-5)
    table, places = torch.zeros(4, 8, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    with pytest.raises(ValueError, match="expected tables half as wide"):
        RotaryInputs(torch.zeros(1, 4, 32, device=device), table, table, places, places)
    inputs = RotaryInputs(torch.zeros(1, 5, 16, device=device), table, table, places, places)
    pages = torch.zeros(1, 2, 8, 16, device=device)
    with pytest.raises(ValueError, match="got 5 heads, expected 2 of queries and 2 x 1"):
        rotary_write(inputs, torch.zeros(1, 2, 16, device=device), pages, pages)
