"""Steps of attention whose unused slots, pages and table entries hold what a test wants them to hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from agentcache_kernels.gpu import (
    AttentionInputs,
    AttentionRules,
    Sequences,
    SequenceSpec,
    StepAttention,
    sequences_on,
)
from agentcache_kernels.gpu.prefill import prefill_attention_twin

FILLINGS = ((math.nan, -1), (1e4, 2**31 - 1), (0.0, 0))
"""What unused slots hold, and what the padding of page tables holds."""

SPLIT = 64 if torch.cuda.is_available() else 32
"""Keys of a split: a multiple of every block of keys that the kernels use there."""


@dataclass(frozen=True)
class Shape:
    q_heads: int
    kv_heads: int
    head_dim: int
    page_size: int
    dtype: torch.dtype = torch.float32
    window: int | None = None

    @property
    def tolerance(self) -> float:
        return 1e-5 if self.dtype == torch.float32 else 2e-2


@dataclass
class AttentionCase:
    shape: Shape
    specs: list[SequenceSpec]
    q: Tensor
    k_pages: Tensor
    v_pages: Tensor

    def inputs(self, filler: float) -> AttentionInputs:
        used = torch.zeros(self.k_pages.shape[1:3], dtype=torch.bool, device=self.q.device)
        for spec in self.specs:
            for position in range(spec.context_len):
                used[spec.pages[position // self.shape.page_size], position % self.shape.page_size] = True
        pools = []
        for pages in (self.k_pages, self.v_pages):
            pages = pages.clone()
            pages[:, ~used] = filler
            pools.append(pages)
        return AttentionInputs(self.q, *pools, 1 / math.sqrt(self.shape.head_dim), self.shape.window)

    def attend(self, filling: tuple[float, int], split: int = SPLIT, one_kernel: bool = False) -> Tensor:
        """All rows, with this in what is not used."""
        inputs = self.inputs(filling[0])
        step = StepAttention.plan(inputs, self.specs, AttentionRules(split, one_kernel=one_kernel))
        for sequences in (step.prefill, step.decode):
            pad_tables(sequences, self.shape.page_size, filling[1])
        return step.attend(inputs)

    def expected(self) -> Tensor:
        out = torch.zeros_like(self.q)
        sequences = sequences_on(self.q.device, self.specs, self.shape.page_size)
        prefill_attention_twin(self.inputs(0.0), sequences, out)
        return out

    def check(self, split: int = SPLIT, one_kernel: bool = False) -> Tensor:
        """Right, and the same bits whatever lies in what is not used."""
        outs = [self.attend(filling, split, one_kernel) for filling in FILLINGS]
        close(outs[-1], self.expected(), self.shape.tolerance)
        for out, filling in zip(outs, FILLINGS):
            assert torch.equal(out, outs[-1]), f"{filling} shows"
        return outs[-1]


def pad_tables(sequences: Sequences, page_size: int, filler: int) -> None:
    for index, context in enumerate(sequences.context_lens.tolist()):
        sequences.tables[index, -(-context // page_size) :] = filler


def close(out: Tensor, expected: Tensor, tolerance: float) -> None:
    assert out.dtype == expected.dtype
    torch.testing.assert_close(out.double(), expected.double(), rtol=tolerance, atol=tolerance)
    assert (out.double() - expected.double()).norm() <= tolerance * expected.double().norm()


def make_case(
    shape: Shape, lens: list[tuple[int, int]], device: torch.device, shared: int = 0, seed: int = 0
) -> AttentionCase:
    """``lens``: (rows, context) of each sequence, whose pages lie in random order.

    The first ``shared`` pages of all sequences that have a single row are the same.
    """
    random = torch.Generator().manual_seed(seed)
    needed = [-(-context // shape.page_size) for _, context in lens]
    num_pages = sum(needed) + shared + 3
    order = torch.randperm(num_pages, generator=random).tolist()
    common = [order.pop() for _ in range(shared)]
    specs, row = [], 0
    for (count, context), pages in zip(lens, needed):
        own = [order.pop() for _ in range(pages)]
        if count == 1:
            own[:shared] = common[: min(shared, pages)]
        specs.append(SequenceSpec(row, count, context, own))
        row += count
    pool = (shape.kv_heads, num_pages, shape.page_size, shape.head_dim)
    # Queries as a model gives them: a row's heads side by side, keys and values of the row behind them.
    fused = torch.randn((row, shape.q_heads + 2 * shape.kv_heads, shape.head_dim), generator=random)
    k_pages, v_pages = (torch.randn(pool, generator=random).to(device, shape.dtype) for _ in range(2))
    return AttentionCase(shape, specs, fused.to(device, shape.dtype)[:, : shape.q_heads], k_pages, v_pages)
