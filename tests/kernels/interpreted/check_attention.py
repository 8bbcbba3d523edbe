"""Attention kernels against their twins, over every kind of head, page and batch."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from kernel_cases import FILLINGS, AttentionCase, Shape, close, make_case

from agentcache_kernels import make_attention_batch, paged_attention
from agentcache_kernels.gpu import AttentionInputs, AttentionRules, SequenceSpec, StepAttention, sequences_on
from agentcache_kernels.gpu.decode import Parts, decode_attention, decode_attention_twin
from agentcache_kernels.gpu.merge import merge, merge_twin
from agentcache_kernels.gpu.shared_prefix import share_splits, shared_prefix_attention, shared_prefix_twin

HEAD_DIMS = [16, 64, 72, 80, 96, 112, 128, 192, 256]
HEADS = [(1, 1), (4, 4), (4, 2), (6, 2), (7, 1), (14, 2), (32, 8), (9, 3)]
PAGE_SIZES = [1, 8, 16, 32]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FEW = [(1, 0), (0, 5), (2, 3), (17, 33), (1, 33), (1, 67), (1, 70)]
MIXED = [(1, 0), (0, 5), (1, 1), (15, 15), (1, 16), (17, 17), (4, 31), (0, 0), (33, 257), (1, 257), (1, 250), (5, 3)]
LENGTHS = [0, 1, 15, 16, 17, 31, 33, 257]


@pytest.mark.parametrize("index", range(len(HEAD_DIMS)))
def test_any_head_size_in_a_mixed_batch(index: int, device: torch.device) -> None:
    q_heads, kv_heads = HEADS[:6][index % 6] if index != 1 else (9, 3)
    window = 20 if index % 4 == 3 else None
    shape = Shape(q_heads, kv_heads, HEAD_DIMS[index], PAGE_SIZES[index % 4], DTYPES[index % 3], window)
    make_case(shape, FEW, device, shared=33 // shape.page_size, seed=index).check()


@pytest.mark.kernels
@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_head_size_ratio_and_page_size(
    head_dim: int, heads: tuple[int, int], page_size: int, device: torch.device
) -> None:
    """Types and windows take turns so that each meets every head size, ratio and page size."""
    index = HEAD_DIMS.index(head_dim) + HEADS.index(heads) + PAGE_SIZES.index(page_size)
    window = 40 if index % 4 == 3 else None
    shape = Shape(*heads, head_dim, page_size, DTYPES[index % 3], window)
    make_case(shape, MIXED, device, shared=64 // page_size, seed=index).check(split=64)


@pytest.mark.kernels
@pytest.mark.parametrize("page_size", [*PAGE_SIZES, 3, 24, 64, 128])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_length_at_every_page_size(page_size: int, dtype: torch.dtype, device: torch.device) -> None:
    for index, context in enumerate(LENGTHS):
        lens = [(1, context), (context, context), (min(context, 5), context), (1, 7)]
        make_case(Shape(*HEADS[index], 32, page_size, dtype), lens, device, seed=index).check()


@pytest.mark.kernels
@pytest.mark.parametrize("window", [1, 2, 16, 32, 40, 300])
def test_a_window_hides_what_lies_before_it(window: int, device: torch.device) -> None:
    lens = [(1, 250), (1, 3), (33, 257), (60, 60), (5, 400), (1, 0), (1, 128), (1, 129)]
    for page_size, dtype in itertools.product((1, 16, 24), (torch.float32, torch.bfloat16)):
        make_case(Shape(6, 2, 24, page_size, dtype, window), lens, device, shared=48 // page_size, seed=window).check()


def test_a_group_may_be_larger_than_a_tile(device: torch.device) -> None:
    make_case(Shape(71, 1, 16, 16), [(1, 70), (1, 80), (3, 40)], device, shared=4).check()


def test_windows_that_end_at_and_beside_borders(device: torch.device) -> None:
    lens = [(1, 100), (1, 64), (1, 65), (20, 70), (3, 2)]
    for window in (1, 32, 33):
        make_case(Shape(2, 1, 16, 16, window=window), lens, device, shared=2).check()


def test_rows_before_the_first_position_give_zero(device: torch.device) -> None:
    out = make_case(Shape(4, 2, 16, 8), [(5, 3), (1, 0), (2, 0), (6, 4)], device).check()
    assert not out[:2].any()
    assert not out[5:8].any()
    assert out[2].any()


def test_an_empty_batch_launches_nothing(device: torch.device) -> None:
    assert make_case(Shape(4, 2, 16, 8), [], device).attend(FILLINGS[0]).shape == (0, 4, 16)
    assert make_case(Shape(4, 2, 16, 8), [(0, 20), (0, 0)], device).attend(FILLINGS[0]).shape == (0, 4, 16)


def test_pages_may_be_shared_and_repeated(device: torch.device) -> None:
    case = make_case(Shape(6, 2, 32, 8), [(1, 40), (9, 40), (1, 24), (3, 12)], device)
    first, second, third, fourth = (list(spec.pages) for spec in case.specs)
    second[:3] = first[:3]
    third[:3] = first[2::-1]
    fourth[:2] = [first[1], first[1]]
    tables = (first, second, third, fourth)
    case.specs = [SequenceSpec(s.row, s.query_len, s.context_len, t) for s, t in zip(case.specs, tables)]
    case.check()


def test_rows_of_no_sequence_stay_zero_and_rows_may_come_in_any_order(device: torch.device) -> None:
    case = make_case(Shape(2, 1, 16, 8), [(3, 20), (1, 40), (4, 4)], device)
    case.specs = [case.specs[2], case.specs[1]]
    assert not case.check()[:3].any()


def test_a_sequence_of_nan_leaves_its_neighbours_alone(device: torch.device) -> None:
    case = make_case(Shape(6, 2, 32, 16), [(1, 70), (1, 30), (20, 64), (1, 90), (3, 5)], device)
    expected = case.attend(FILLINGS[2])
    case.q[0] = math.nan
    for pages in (case.k_pages, case.v_pages):
        pages[:, list(case.specs[0].pages)] = math.nan
    out = case.attend(FILLINGS[2])
    assert out[0].isnan().all()
    assert torch.equal(out[1:], expected[1:])


def test_single_rows_may_take_the_way_of_prompts(device: torch.device) -> None:
    make_case(Shape(6, 2, 24, 16), [(1, 70), (1, 0), (4, 40)], device).check(one_kernel=True)


def test_a_prompt_gives_the_same_bits_however_it_is_cut(device: torch.device) -> None:
    case = make_case(Shape(6, 2, 32, 16), [(100, 100)], device)
    pages = case.specs[0].pages
    results = []
    for split in ([100], [64, 36], [1, 98, 1], [33, 33, 34]):
        specs, end = [], 0
        for count in split:
            specs.append(SequenceSpec(end, count, end + count, pages))
            end += count
        cut = AttentionCase(case.shape, specs, case.q, case.k_pages, case.v_pages)
        results.append(cut.attend(FILLINGS[0], one_kernel=True))
    for result in results[1:]:
        assert torch.equal(result, results[0])


def test_each_kernel_alone_equals_its_twin(device: torch.device) -> None:
    """Three of four sequences share two splits, two of them a third one; the last shares nothing."""
    for window in (None, 40, 100):
        case = make_case(Shape(6, 2, 24, 16, window=window), [(1, 130), (1, 150), (1, 64), (1, 97)], device, shared=4)
        first, second, third, _ = case.specs
        second.pages[:6] = first.pages[:6]  # type: ignore[index]
        case.specs[3] = SequenceSpec(3, 1, 97, list(reversed(first.pages[:7])))
        inputs, sequences = case.inputs(math.nan), sequences_on(device, case.specs, 16)
        shared = share_splits(case.specs, 16, 32, 2).on(device)
        assert shared.first_splits.tolist() == [3, 3, 2, 0]
        assert sorted(shared.items[:, 1:].tolist()) == [[1, 0], [1, 1], [2, 0], [2, 1], [2, 2]]
        ours, theirs = (Parts.room(inputs, sequences, 32) for _ in range(2))
        shared_prefix_attention(inputs, sequences, shared, ours).run()
        own = Parts.room(inputs, sequences, 32)
        decode_attention(inputs, sequences, shared.first_splits, own).run()
        for index, first_split in enumerate(shared.first_splits.tolist()):
            assert own.results[index, :, :first_split].isnan().all()  # others have read these
        decode_attention(inputs, sequences, shared.first_splits, ours).run()
        shared_prefix_twin(inputs, sequences, shared, theirs)
        decode_attention_twin(inputs, sequences, shared.first_splits, theirs)
        for index, spec in enumerate(case.specs):
            first_read = 0 if window is None else max(0, spec.context_len - window) // 32
            splits = slice(first_read, -(-spec.context_len // 32))
            close(ours.results[index, :, splits], theirs.results[index, :, splits], 1e-5)
            close(ours.logs[index, :, splits], theirs.logs[index, :, splits], 1e-5)
        merged, expected = torch.zeros_like(case.q), torch.zeros_like(case.q)
        merge(ours, sequences, window, merged).run()
        merge_twin(theirs, sequences, window, expected)
        close(merged, expected, 1e-5)
        close(merged, case.expected(), 1e-5)
        assert third.context_len == 64


def test_the_twin_agrees_with_the_attention_of_processors() -> None:
    for window in (None, 40):
        case = make_case(Shape(6, 2, 24, 16, window=window), MIXED, torch.device("cpu"))
        inputs = case.inputs(0.0)
        specs = case.specs
        batch = make_attention_batch(
            [s.query_len for s in specs], [s.context_len for s in specs], [s.pages for s in specs], 16, inputs.q.device
        )
        out = paged_attention(
            inputs.q.contiguous(), inputs.k_pages, inputs.v_pages, batch, scale=inputs.scale, window=window
        )
        close(out, case.expected(), 1e-5)


def test_pages_beyond_two_to_the_31_elements_are_reached(device: torch.device) -> None:
    """Memory that nobody touches is not taken, so on a processor a pool of 4.3 GB is as good as a small one."""
    case = make_case(Shape(2, 1, 64, 16, torch.float16), [(1, 40), (18, 18)], device)
    before = 2**31 // (16 * 64)
    torch.use_deterministic_algorithms(False)  # it would touch all of it
    far = torch.empty((1, before + case.k_pages.shape[1], 16, 64), dtype=torch.float16, device=device)
    far[:, before:] = case.k_pages
    moved = [SequenceSpec(s.row, s.query_len, s.context_len, [p + before for p in s.pages]) for s in case.specs]
    outs = []
    for pool, specs in ((far, moved), (case.k_pages, case.specs)):
        inputs = AttentionInputs(case.q, pool, pool, 0.125)
        outs.append(StepAttention.plan(inputs, specs, AttentionRules(64)).attend(inputs))
    assert torch.equal(outs[0], outs[1])


def test_sharing_that_spares_too_little_is_left_alone(device: torch.device) -> None:
    case = make_case(Shape(4, 2, 16, 8), [(1, 70), (1, 80), (1, 90), (1, 30)], device, shared=8)
    inputs = case.inputs(0.0)
    spared = 2 * 2 * 2 * 32 * 2 * 16 * 4  # two splits of 32 keys, each by two others; keys and values of 2 heads of 16
    outs = []
    for least, items in ((spared, 2), (spared + 1, 0)):
        step = StepAttention.plan(inputs, case.specs, AttentionRules(32, least_spared=least))
        assert len(step.shared.items) == items
        outs.append(step.attend(inputs))
    close(outs[0], outs[1], 1e-6)


def test_an_item_of_nobody_reads_and_writes_nothing(device: torch.device) -> None:
    """Such items fill up lists of a fixed length."""
    case = make_case(Shape(4, 2, 16, 8), [(1, 70), (1, 80)], device, shared=8)
    inputs = case.inputs(math.nan)
    sequences = sequences_on(device, case.specs, 8)
    shared = share_splits(case.specs, 8, 32, 2)
    assert shared.spared == 2
    shared.items[1:] = [(0, 0, 0), (0, 0, 9)]
    parts = Parts.room(inputs, sequences, 32)
    parts.results.fill_(7.0)
    shared_prefix_attention(inputs, sequences, shared.on(device), parts).run()
    assert (parts.results[:, :, 1:] == 7.0).all()
    assert not (parts.results[:, :, 0] == 7.0).any()
