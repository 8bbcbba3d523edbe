"""Attention of single rows whose keys lie anywhere in the pool, without gathering them (CPU, float32).

Gathering the pages of a decode batch costs more than attending to them.  Two library products read scattered rows in
place, and both take the same list of slots, in the compressed-row form of a sparse matrix:

::

    one line for each (row, query head), one entry for each key it sees

    lines:  | row 0, head 0 | row 0, head 1 | ... | row 1, head 0 | ...
    slots:    s0 s1 s2 ...    s0 s1 s2 ...          t0 t1 ...          s = kv_head * pool slots + page * page_size + offset

    scores  = the entries of  q @ keys.T  at those slots            (sampled_addmm)
    weights = softmax of each line
    out     = for each line, the weighted sum of the values there   (embedding_bag)

Each entry and each line is summed on its own, so a row's bits depend neither on its company in the batch nor on where
its pages lie, and slots that hold no key are never touched.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class PoolShape(NamedTuple):
    """``kv_heads * slots`` rows of keys, read by ``q_heads`` query heads."""

    q_heads: int
    kv_heads: int
    num_pages: int
    page_size: int


class DecodeRow(NamedTuple):
    """Row ``row`` of the step stands at the last of ``context`` positions, whose pages are ``pages`` (int64)."""

    row: int
    context: int
    pages: Tensor


@dataclass(frozen=True, slots=True)
class ScatteredKeys:
    """The slots that every (row, query head) sees, as a sparse pattern."""

    rows: Tensor
    """int64 ``[rows]``: which rows of the step these are."""
    pattern: Tensor
    """float32 CSR ``[rows * q_heads, kv_heads * num_pages * page_size]``; its values are zeros."""
    line_lengths: list[int]
    """Keys that each row sees, in the order of ``rows``."""

    @classmethod
    def build(cls, rows: Sequence[DecodeRow], shape: PoolShape, window: int | None) -> ScatteredKeys:
        """The pattern for these rows over a pool of this shape.

        Raises:
            ValueError: a page table names a page that the pool does not have; the products do not check.
        """
        pages = torch.cat([row.pages for row in rows])
        if int(pages.min()) < 0 or int(pages.max()) >= shape.num_pages:
            raise ValueError(f"got pages {int(pages.min())} to {int(pages.max())}, expected 0 to {shape.num_pages - 1}")
        lengths = [row.context if window is None else min(row.context, window) for row in rows]
        pool_slots = shape.num_pages * shape.page_size
        entries = sum(lengths) * shape.q_heads
        size = (len(rows) * shape.q_heads, shape.kv_heads * pool_slots)
        index = torch.int32 if max(entries, size[1]) < 2**31 else torch.int64
        slots = torch.empty(entries, dtype=index)
        heads = (torch.arange(shape.kv_heads, dtype=index) * pool_slots)[:, None, None]
        offsets = torch.arange(shape.page_size, dtype=index)
        start = 0
        for row, length in zip(rows, lengths, strict=True):
            end = start + length * shape.q_heads
            tokens = (row.pages.to(index)[:, None] * shape.page_size + offsets).flatten()
            seen = tokens[row.context - length : row.context]
            slots[start:end].view(shape.kv_heads, -1, length).copy_(heads + seen)
            start = end
        ends = torch.tensor([0, *lengths]).repeat_interleave(torch.tensor([1] + [shape.q_heads] * len(rows))).cumsum(0)
        pattern = _csr(ends.to(index), slots, size)
        return cls(torch.tensor([row.row for row in rows]), pattern, lengths)

    def attend(self, q: Tensor, k_pages: Tensor, v_pages: Tensor, scale: float) -> Tensor:
        """``[rows, q_heads, head_dim]`` from the whole step's ``q`` ``[tokens, q_heads, head_dim]``."""
        _, q_heads, head_dim = q.shape
        keys, values = (pages.view(-1, head_dim) for pages in (k_pages, v_pages))
        lines = q[self.rows].view(-1, head_dim)
        scores = torch.sparse.sampled_addmm(self.pattern, lines, keys.t(), beta=0.0, alpha=scale).values()
        start = 0
        for length in self.line_lengths:
            end = start + length * q_heads
            row = scores[start:end].view(q_heads, length)
            torch.softmax(row, -1, out=row)
            start = end
        sums = torch.nn.functional.embedding_bag(
            self.pattern.col_indices(),
            values,
            self.pattern.crow_indices(),
            mode="sum",
            per_sample_weights=scores,
            include_last_offset=True,
        )
        return sums.view(-1, q_heads, head_dim)


def _csr(ends: Tensor, slots: Tensor, size: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        # torch says once per process that its CSR layout may change; what is used of it here is tested.
        warnings.filterwarnings("ignore", message=".*CSR tensor support is in beta.*")
        return torch.sparse_csr_tensor(ends, slots, torch.zeros(len(slots)), size, check_invariants=False)
