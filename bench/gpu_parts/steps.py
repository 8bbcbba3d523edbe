"""Steps of attention over random pages, in the shapes of models."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from agentcache_kernels.gpu import AttentionInputs, SequenceSpec


@dataclass(frozen=True)
class Heads:
    """One layer's shape."""

    q_heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    page_size: int = 16

    @property
    def key_bytes(self) -> int:
        """Bytes of one token's keys and values."""
        return 2 * self.kv_heads * self.head_dim * int(self.dtype.itemsize)

    @property
    def name(self) -> str:
        return f"{self.q_heads}/{self.kv_heads} x {self.head_dim} {str(self.dtype).removeprefix('torch.')}"


def make_step(
    heads: Heads, lens: list[tuple[int, int]], device: torch.device, shared: int = 0
) -> tuple[AttentionInputs, list[SequenceSpec]]:
    """``lens``: (rows, context) of each sequence; pages lie in random order, the first ``shared`` tokens' are the same.

    Slots that nobody uses hold NaN.
    """
    size = heads.page_size
    common = -(-shared // size) if shared % size == 0 else shared // size
    needed = [-(-context // size) for _, context in lens]
    free = list(range(common + sum(max(0, pages - common) for pages in needed) + 2))
    random.Random(0).shuffle(free)
    first = [free.pop() for _ in range(common)]
    specs, row = [], 0
    for (count, context), pages in zip(lens, needed, strict=True):
        own = [free.pop() for _ in range(max(0, pages - common))]
        specs.append(SequenceSpec(row, count, context, [*first[:pages], *own]))
        row += count
    shape = (heads.kv_heads, common + sum(max(0, pages - common) for pages in needed) + 2, size, heads.head_dim)
    k_pages, v_pages = (torch.randn(shape, device=device, dtype=heads.dtype) for _ in range(2))
    unused = _unused(specs, shape[1], size).to(device)
    for pool in (k_pages, v_pages):
        pool.masked_fill_(unused[None, :, :, None], float("nan"))
    q = torch.randn((row, heads.q_heads, heads.head_dim), device=device, dtype=heads.dtype)
    return AttentionInputs(q, k_pages, v_pages, heads.head_dim**-0.5), specs


def _unused(specs: list[SequenceSpec], pages: int, size: int) -> Tensor:
    unused = torch.ones((pages, size), dtype=torch.bool)
    for spec in specs:
        full = spec.context_len // size
        unused[list(spec.pages[:full])] = False
        if spec.context_len % size:
            unused[spec.pages[full], : spec.context_len % size] = False
    return unused
