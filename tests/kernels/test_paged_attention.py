"""Paged attention against a float64 softmax written out row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from agentcache_kernels import make_attention_batch, paged_attention

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
            for position in range(context):
                used[table[position // page_size] * page_size + position % page_size] = True
        return used.view(-1, page_size)

    def filled(self, filler: float) -> tuple[Tensor, Tensor]:
        """Pools whose unused slots hold ``filler``."""
        unused = ~self.used_slots()
        pools = []
        for pages in (self.k_pages, self.v_pages):
            copy = pages.clone()
            copy[:, unused] = filler
            pools.append(copy)
        return pools[0], pools[1]

    def run(self, filler: float = 0.0, window: int | None = None) -> Tensor:
        k_pages, v_pages = self.filled(filler)
        batch = make_attention_batch(self.query_lens, self.context_lens, self.tables, self.shape.page_size, CPU)
        return paged_attention(self.q, k_pages, v_pages, batch, scale=scale_of(self.shape), window=window)

    def reference(self, window: int | None = None) -> Tensor:
        rows = []
        page_size, group = self.shape.page_size, self.shape.q_heads // self.shape.kv_heads
        first = 0
        for count, context, table in zip(self.query_lens, self.context_lens, self.tables):
            slots = [(table[p // page_size], p % page_size) for p in range(context)]
            for row in range(count):
                position = context - count + row
                low = 0 if window is None else max(0, position - window + 1)
                seen = slots[low : position + 1] if position >= 0 else []
                rows.append(self._row(self.q[first + row].double(), seen, group))
            first += count
        return torch.stack(rows) if rows else torch.zeros(self.q.shape, dtype=torch.float64)

    def _row(self, q: Tensor, seen: list[tuple[int, int]], group: int) -> Tensor:
        if not seen:
            return torch.zeros_like(q)
        pages, offsets = torch.tensor(seen).T
        keys = self.k_pages[:, pages, offsets].double().repeat_interleave(group, 0)
        values = self.v_pages[:, pages, offsets].double().repeat_interleave(group, 0)
        weights = torch.einsum("hd,hld->hl", q * scale_of(self.shape), keys).softmax(-1)
        return torch.einsum("hl,hld->hd", weights, values)


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


@pytest.mark.parametrize("index", range(len(HEAD_DIMS)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_any_head_size_and_ratio_in_a_mixed_batch(index: int, dtype: torch.dtype) -> None:
    for step in range(2):
        q_heads, kv_heads = HEADS[(index + 3 * step) % len(HEADS)]
        page_size = PAGE_SIZES[(index + step) % len(PAGE_SIZES)]
        check(make_case(Shape(q_heads, kv_heads, HEAD_DIMS[index], page_size, dtype), MIXED, seed=index))
