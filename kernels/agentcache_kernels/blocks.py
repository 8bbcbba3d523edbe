"""Attention to one block of keys at a time: the only arithmetic that rows and keys go through.

Keys are cut into blocks at fixed positions, so which blocks a row sees, and where in them, follows from its position:

::

    positions:   0 ......... 255 | 256 ....... 511 | 512 ....... 767 |           block_tokens = 256
    row at 600:  [ all seen     ]  [ all seen     ]  [ seen | hidden ]           each gives (out, lse)

Every block is read whole, so the matrix products of a row have the same inner shape whatever the context, the chunk and
the company; and products are given rows in multiples of four only, below which Intel MKL takes other code, which rounds
differently.  A row's result in a block is then a function of its query, of the block's keys and of its position alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

_BLOCK_TOKENS = 256
_ROWS = 4
"""Products of MKL agree in their rows from here on, in multiples of this (docs/determinism.md)."""


class PoolShape(NamedTuple):
    """Keys of ``num_pages`` pages for ``kv_heads`` heads, read by ``q_heads`` query heads."""

    q_heads: int
    kv_heads: int
    num_pages: int
    page_size: int

    @property
    def group(self) -> int:
        """Query heads that share one head of keys."""
        return self.q_heads // self.kv_heads

    @property
    def block_pages(self) -> int:
        return max(1, _BLOCK_TOKENS // self.page_size)

    @property
    def block_tokens(self) -> int:
        """Keys of a block: a whole number of pages, and as near to 256 as that allows."""
        return self.block_pages * self.page_size


@dataclass(frozen=True, slots=True)
class Block:
    """Block number ``index`` of a sequence that has ``context`` keys in ``pages``."""

    pages: list[int]
    context: int
    index: int


@dataclass(frozen=True, slots=True)
class BlockRead:
    """Blocks that are gathered in one go."""

    blocks: int
    pages: Tensor
    """int64, for each head, each block and each of its pages: which row of the pool that is,
    seen as ``[kv_heads * num_pages, page_size * head_dim]``."""
    unused: Tensor
    """int64: slots of the gathered ``[blocks * block_tokens]`` that hold no key and may hold anything, NaN included."""


@dataclass(slots=True)
class BlockReader:
    """Gathers blocks.  What it gathered is overwritten by the next gathering: fresh memory would cost as much again."""

    shape: PoolShape
    device: torch.device
    _rooms: dict[tuple[bool, int, torch.dtype], _Room] = field(default_factory=dict)

    def plan(self, blocks: Sequence[Block]) -> BlockRead:
        shape = self.shape
        pages: list[int] = []
        unused: list[int] = []
        for number, block in enumerate(blocks):
            first = block.index * shape.block_pages
            own = block.pages[first : first + shape.block_pages]
            # The rest is hidden; the sequence's first page stands there, which is full unless it is the only one.
            pages += own + block.pages[:1] * (shape.block_pages - len(own))
            keys = min(block.context - block.index * shape.block_tokens, shape.block_tokens)
            filled = len(own) * shape.page_size if len(block.pages) > 1 else shape.block_tokens
            start = number * shape.block_tokens
            unused += range(start + keys, start + filled)
        heads = torch.arange(shape.kv_heads, device=self.device)[:, None] * shape.num_pages
        rows = (heads + torch.tensor(pages, device=self.device)).flatten()
        return BlockRead(len(blocks), rows, torch.tensor(unused, dtype=torch.int64, device=self.device))

    def gather(self, read: BlockRead, k_pages: Tensor, v_pages: Tensor) -> tuple[Tensor, Tensor]:
        """Two float32 tensors ``[kv_heads, blocks, block_tokens, head_dim]``, valid until the next call."""
        return self._gather(True, read, k_pages), self._gather(False, read, v_pages)

    def _gather(self, keys: bool, read: BlockRead, pool: Tensor) -> Tensor:
        kind = (keys, read.blocks, pool.dtype)
        room = self._rooms.get(kind)
        if room is None:
            room = self._rooms[kind] = _Room.make(self.shape, read.blocks, pool)
        torch.index_select(pool.view(-1, room.pages.shape[1]), 0, read.pages, out=room.pages)
        if len(read.unused):
            room.slots.index_fill_(1, read.unused, 0)
        return room.blocks if pool.dtype is torch.float32 else room.blocks.float()


class _Room(NamedTuple):
    """Three views of the memory that blocks are gathered into."""

    pages: Tensor
    """``[kv_heads * blocks * block_pages, page_size * head_dim]``."""
    slots: Tensor
    """``[kv_heads, blocks * block_tokens, head_dim]``."""
    blocks: Tensor
    """``[kv_heads, blocks, block_tokens, head_dim]``."""

    @classmethod
    def make(cls, shape: PoolShape, blocks: int, pool: Tensor) -> _Room:
        memory = pool.new_empty((shape.kv_heads, blocks, shape.block_tokens, pool.shape[3]))
        return cls(memory.view(-1, shape.page_size * pool.shape[3]), memory.flatten(1, 2), memory)


def padded_count(count: int) -> int:
    """Rows to give to a product that is about ``count`` of them."""
    return -(-count // _ROWS) * _ROWS


def padded(rows: Tensor) -> Tensor:
    """``rows`` ``[..., count, head_dim]`` with zeros after them, up to a count that products agree in."""
    missing = padded_count(rows.shape[-2]) - rows.shape[-2]
    return pad(rows, (0, 0, 0, missing)) if missing else rows


def attend(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """Softmax attention of every row to the keys of its block alone.

    Args:
        q: float32 ``[batch, heads, rows, head_dim]``, ``rows`` a multiple of four.
        keys, values: float32 ``[batch, heads, block_tokens, head_dim]``.
        bias: added to the scores, broadcasts to ``[batch, heads, rows, block_tokens]``: 0 or -inf, not -inf all along.

    Returns:
        ``[batch * rows * heads, head_dim]`` in this order of dimensions, and the logs of the sums of exponentials
        ``[batch * rows * heads]``.
    """
    if q.device.type == "cpu":
        # scaled_dot_product_attention would call the same kernel and keep the second result to itself.
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, keys, values, attn_mask=bias, scale=scale
        )
    else:
        scores = q @ keys.transpose(-1, -2) * scale
        if bias is not None:
            scores += bias
        lse = scores.logsumexp(-1)
        out = (scores - lse[..., None]).exp_() @ values
    return out.transpose(1, 2).reshape(-1, out.shape[3]), lse.transpose(1, 2).reshape(-1)
