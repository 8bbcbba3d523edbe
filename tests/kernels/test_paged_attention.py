"""Paged attention against a float64 softmax over all keys of a sequence: torch's operators, and compiled kernels in float32."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from agentcache_kernels import make_attention_batch, paged_attention
from agentcache_kernels.attention import turned

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Shape:
    q_heads: int
    kv_heads: int
    head_dim: int
    page_size: int
    dtype: torch.dtype = torch.float32


@dataclass
class Case:
    """Sequences whose pages lie in random order in a pool that has spare pages."""

    shape: Shape
    query_lens: list[int]
    context_lens: list[int]
    tables: list[list[int]]
    q: Tensor
    k_pages: Tensor
    v_pages: Tensor

    def used_slots(self) -> Tensor:
        page_size = self.shape.page_size
        used = torch.zeros(self.k_pages.shape[1] * page_size, dtype=torch.bool)
        for context, table in zip(self.context_lens, self.tables):
            for page, first in zip(table, range(0, context, page_size)):
                used[page * page_size : page * page_size + min(page_size, context - first)] = True
        return used.view(-1, page_size)

    def filled(self, filler: float) -> tuple[Tensor, Tensor]:
        """Pools whose unused slots hold ``filler``."""
        unused = ~self.used_slots()
        pools = []
        for pages in (self.k_pages, self.v_pages):
            copy = pages.clone()
            copy[:, unused] = filler
            pools.append(copy)
        keys, values = pools
        return (turned(keys) if _turns_keys(self.shape.dtype) else keys), values

    def run(self, filler: float = 0.0, window: int | None = None) -> Tensor:
        k_pages, v_pages = self.filled(filler)
        batch = make_attention_batch(self.query_lens, self.context_lens, self.tables, self.shape.page_size, CPU)
        return paged_attention(self.q, k_pages, v_pages, batch, scale=scale_of(self.shape), window=window)

    def reference(self, window: int | None = None) -> Tensor:
        parts = [torch.zeros((0, *self.q.shape[1:]), dtype=torch.float64)]
        first = 0
        for count, context, table in zip(self.query_lens, self.context_lens, self.tables):
            parts.append(self._rows(self.q[first : first + count].double(), context, table, window))
            first += count
        return torch.cat(parts)

    def _rows(self, q: Tensor, context: int, table: list[int], window: int | None) -> Tensor:
        """The last rows of one sequence: each position sees itself and what lies before it, in the window."""
        page_size, group = self.shape.page_size, self.shape.q_heads // self.shape.kv_heads
        keys_at = torch.arange(context)
        rows_at = torch.arange(context - len(q), context)[:, None]
        seen = keys_at <= rows_at if window is None else (keys_at <= rows_at) & (keys_at > rows_at - window)
        if context == 0:
            return torch.zeros_like(q)
        pages = torch.tensor(table[: -(-context // page_size)])[keys_at // page_size]
        keys = self.k_pages[:, pages, keys_at % page_size].double().repeat_interleave(group, 0)
        values = self.v_pages[:, pages, keys_at % page_size].double().repeat_interleave(group, 0)
        scores = torch.einsum("rhd,hld->rhl", q * scale_of(self.shape), keys)
        weights = scores.masked_fill(~seen[:, None], -math.inf).softmax(-1)
        weights = weights.where(seen.any(-1)[:, None, None], 0.0)  # a row that sees nothing
        return torch.einsum("rhl,hld->rhd", weights, values)


_COMPILED: list[bool] = []


@pytest.fixture(autouse=True, params=[False, True], ids=["torch", "compiled"])
def _kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test is run with torch's operators and with compiled kernels, which do float32 only."""
    _COMPILED.append(request.param)
    yield
    _COMPILED.pop()


def _turns_keys(dtype: torch.dtype) -> bool:
    return _COMPILED[-1] and dtype == torch.float32


def scale_of(shape: Shape) -> float:
    return 1 / math.sqrt(shape.head_dim)


def make_case(shape: Shape, lens: list[tuple[int, int]], seed: int = 0) -> Case:
    """``lens``: (query length, context length) of each sequence; every table has rubbish beyond what it needs."""
    random = torch.Generator().manual_seed(seed)
    needed = [-(-context // shape.page_size) for _, context in lens]
    num_pages = sum(needed) + 3
    order = torch.randperm(num_pages, generator=random).tolist()
    tables = [[order.pop() for _ in range(count)] + [num_pages - 1, 10**9] for count in needed]
    pool = (shape.kv_heads, num_pages, shape.page_size, shape.head_dim)
    tokens = sum(count for count, _ in lens)
    return Case(
        shape,
        [count for count, _ in lens],
        [context for _, context in lens],
        tables,
        torch.randn((tokens, shape.q_heads, shape.head_dim), generator=random).to(shape.dtype),
        torch.randn(pool, generator=random).to(shape.dtype),
        torch.randn(pool, generator=random).to(shape.dtype),
    )


def check(case: Case, window: int | None = None) -> None:
    """Right, and the same bits whatever unused slots hold."""
    out = case.run(0.0, window)
    reference = case.reference(window)
    tolerance = 1e-5 if case.shape.dtype == torch.float32 else 2e-2
    assert out.shape == case.q.shape
    assert out.dtype == case.q.dtype
    assert (out.double() - reference).norm() <= tolerance * reference.norm()
    torch.testing.assert_close(out.double(), reference, rtol=tolerance, atol=tolerance)
    for filler in (math.nan, 1e4):
        assert torch.equal(case.run(filler, window), out)


MIXED = [(1, 0), (0, 5), (1, 1), (15, 15), (1, 16), (17, 17), (4, 31), (1, 33), (0, 0), (33, 257), (1, 257), (1, 250)]
HEAD_DIMS = [16, 64, 72, 80, 96, 112, 128, 192, 256]
HEADS = [(1, 1), (4, 4), (4, 2), (6, 2), (7, 1), (14, 2), (32, 8), (9, 3)]
PAGE_SIZES = [1, 8, 16, 32]
LENGTHS = [0, 1, 15, 16, 17, 31, 33, 257]


@pytest.mark.parametrize("index", range(len(HEAD_DIMS)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_any_head_size_and_ratio_in_a_mixed_batch(index: int, dtype: torch.dtype) -> None:
    for step in range(2):
        q_heads, kv_heads = HEADS[(index + 3 * step) % len(HEADS)]
        page_size = PAGE_SIZES[(index + step) % len(PAGE_SIZES)]
        check(make_case(Shape(q_heads, kv_heads, HEAD_DIMS[index], page_size, dtype), MIXED, seed=index))


@pytest.mark.parametrize("page_size", [*PAGE_SIZES, 3, 24, 1024])
@pytest.mark.parametrize("rows", ["decode", "whole", "tail"])
def test_every_length_at_every_page_size(page_size: int, rows: str) -> None:
    for index, context in enumerate(LENGTHS):
        count = {"decode": 1, "whole": context, "tail": min(context, 5)}[rows]
        q_heads, kv_heads = HEADS[index]
        check(make_case(Shape(q_heads, kv_heads, 32, page_size), [(count, context), (1, 7)], seed=index))


@pytest.mark.parametrize("window", [1, 2, 16, 40, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_window_hides_what_lies_before_it(window: int, dtype: torch.dtype) -> None:
    lens = [(1, 250), (1, 3), (33, 257), (60, 60), (5, 1100), (1, 0)]
    for page_size in (1, 16, 24):
        check(make_case(Shape(6, 2, 24, page_size, dtype), lens, seed=window), window)


def test_rows_before_the_first_position_give_zero() -> None:
    case = make_case(Shape(4, 2, 16, 8), [(5, 3), (1, 0), (2, 0), (6, 4)])
    check(case)
    assert not case.run()[:2].any()
    assert case.run()[2].any()


def test_an_empty_batch_gives_an_empty_result() -> None:
    case = make_case(Shape(4, 2, 16, 8), [])
    assert case.run().shape == (0, 4, 16)
    nobody_asks = make_case(Shape(4, 2, 16, 8), [(0, 20), (0, 0)])
    assert nobody_asks.run().shape == (0, 4, 16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_pages_may_be_shared_and_repeated(dtype: torch.dtype) -> None:
    lens = [(1, 40), (9, 40), (1, 24), (3, 12)]
    case = make_case(Shape(6, 2, 32, 8, dtype), lens)
    shared = case.tables[0][:3]
    case.tables[1][:3] = shared
    case.tables[2][:3] = shared[::-1]
    case.tables[3][:2] = [shared[1], shared[1]]
    check(case)


SPLITS = [[700], [512, 188], [1, 699], [130, 2, 3, 565], [16] * 43 + [12], [333, 333, 34], [200, 1, 190, 309]]


@pytest.mark.parametrize("shape", [Shape(9, 3, 64, 16), Shape(14, 2, 80, 8), Shape(4, 4, 16, 1), Shape(2, 1, 256, 24)])
@pytest.mark.parametrize("window", [None, 20, 300])
def test_a_prompt_gives_the_same_bits_however_it_is_cut(shape: Shape, window: int | None) -> None:
    case = make_case(shape, [(700, 700)])
    k_pages, v_pages = case.filled(math.nan)
    results = []
    for split in SPLITS:
        rows, end = [], 0
        for count in split:
            q, end = case.q[end : end + count], end + count
            batch = make_attention_batch([count], [end], case.tables, shape.page_size, CPU)
            rows.append(paged_attention(q, k_pages, v_pages, batch, scale=scale_of(shape), window=window))
        results.append(torch.cat(rows))
    for split, result in zip(SPLITS[1:], results[1:]):
        assert torch.equal(result, results[0]), f"cut into {split}"


def test_a_row_keeps_its_bits_in_any_company_and_on_any_pages() -> None:
    shape = Shape(9, 3, 64, 16)
    alone = [make_case(shape, [lens], seed=1).run() for lens in [(1, 333), (30, 250)]]
    for others in ([(1, 40)], [(1, 600), (7, 7), (1, 1), (64, 200)]):
        for index, lens in enumerate([(1, 333), (30, 250)]):
            small, large = make_case(shape, [lens], seed=1), make_case(shape, [lens, *others], seed=2)
            large.q[: lens[0]] = small.q
            for pages in ("k_pages", "v_pages"):
                source, target = getattr(small, pages), getattr(large, pages)
                for ours, theirs in zip(small.tables[0], large.tables[0][: -(-lens[1] // 16)]):
                    target[:, theirs] = source[:, ours]
            assert torch.equal(large.run(math.nan)[: lens[0]], alone[index])


@pytest.mark.parametrize("window", [None, 300])
def test_a_row_keeps_its_bits_when_its_blocks_are_read_for_several(window: int | None) -> None:
    """Four sequences share their beginning: two of them three blocks of 256 keys, one two, one none."""
    shape = Shape(6, 2, 32, 16)
    case = make_case(shape, [(1, 800), (1, 900), (1, 700), (1, 777)])
    case.tables[1][:48] = case.tables[0][:48]
    case.tables[2][:40] = case.tables[0][:40]
    k_pages, v_pages = case.filled(math.nan)
    together = case.run(math.nan, window)
    for i, (context, table) in enumerate(zip(case.context_lens, case.tables)):
        batch = make_attention_batch([1], [context], [table], 16, CPU)
        alone = paged_attention(case.q[i : i + 1], k_pages, v_pages, batch, scale=scale_of(shape), window=window)
        assert torch.equal(together[i], alone[0])
    torch.testing.assert_close(together.double(), case.reference(window), rtol=1e-5, atol=1e-6)


def test_a_sequence_of_nan_leaves_its_neighbours_alone() -> None:
    case = make_case(Shape(6, 2, 32, 16), [(1, 700), (1, 300), (40, 640), (1, 900), (3, 5)])
    expected = case.run()
    case.q[0] = math.nan
    for pages in (case.k_pages, case.v_pages):
        pages[:, case.tables[0][:40]] = math.nan
    out = case.run()
    assert out[0].isnan().all()
    assert torch.equal(out[1:], expected[1:])


def test_one_batch_serves_layers_with_and_without_a_window() -> None:
    case = make_case(Shape(4, 2, 16, 8), [(20, 50), (1, 50)])
    k_pages, v_pages = case.filled(0.0)
    batch = make_attention_batch(case.query_lens, case.context_lens, case.tables, 8, CPU)
    for window in (None, 7, None, 30, 7):
        out = paged_attention(case.q, k_pages, v_pages, batch, scale=0.25, window=window)
        torch.testing.assert_close(out.double(), case.reference(window), rtol=1e-5, atol=1e-5)


def test_mistakes_are_named() -> None:
    case = make_case(Shape(4, 2, 16, 8), [(1, 20)])
    k_pages, v_pages = case.filled(0.0)
    with pytest.raises(ValueError, match="got 2 pages for 20 positions, expected 3"):
        make_attention_batch([1], [20], [[0, 1]], 8, CPU)
    with pytest.raises(ValueError, match="got 2 query lengths, 1 context"):
        make_attention_batch([1, 1], [20], [[0, 1, 2]], 8, CPU)
    batch = make_attention_batch([1], [20], [[0, 1, 10**6]], 8, CPU)
    with pytest.raises(ValueError, match=r"got pages 0 to 1000000, expected 0 to"):
        paged_attention(case.q, k_pages, v_pages, batch, scale=1.0)
    batch = make_attention_batch([1], [20], case.tables, 8, CPU)
    with pytest.raises(ValueError, match="got window 0"):
        paged_attention(case.q, k_pages, v_pages, batch, scale=1.0, window=0)
    with pytest.raises(ValueError, match="expected at least 1 rows and a multiple of 2 heads"):
        paged_attention(case.q[:, :3], k_pages, v_pages, batch, scale=1.0)
    with pytest.raises(ValueError, match="expected both as"):
        paged_attention(case.q, k_pages[..., :8], v_pages, batch, scale=1.0)
