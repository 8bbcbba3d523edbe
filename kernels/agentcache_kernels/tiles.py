"""Attention of several rows of one sequence: pieces of prompts.

::

              block 0   block 1   block 2
    row 0     #######   ###                     '#': seen.  Of each block only the rows that see any of it are computed,
    row 1     #######   #######                 and the results of a row's blocks are merged in order of blocks.
    row 2     #######   #######   #
    row 3     #######   #######   ##
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from agentcache_kernels.blocks import Block, BlockRead, BlockReader, attend, padded

if TYPE_CHECKING:
    from agentcache_kernels.batch import Span

_LINES = 2**17
"""(row, query head, block) triples whose results may wait for merging at once: 32 MiB at a head size of 64."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows ``begin .. end`` of the tile and the block that they see."""

    begin: int
    end: int
    block: BlockRead
    bias: Tensor | None
    """float32 ``[(end - begin) * group, block_tokens]`` and zeros below up to a multiple of four rows; ``None``: every
    row sees the whole block."""


@dataclass(frozen=True, slots=True)
class RowTile:
    """Rows ``first .. first + count`` of the step, of one sequence."""

    reader: BlockReader
    first: int
    count: int
    pieces: list[_Piece]
    """In order of blocks."""

    def attend(self, q: Tensor, k_pages: Tensor, v_pages: Tensor, scale: float) -> Tensor:
        """``[count, q_heads, head_dim]`` in float32 from the whole step's ``q`` ``[tokens, q_heads, head_dim]``."""
        shape = self.reader.shape
        rows = q[self.first : self.first + self.count].float()
        lines = rows.view(self.count, shape.kv_heads, shape.group, -1).transpose(0, 1)
        lines = lines.reshape(shape.kv_heads, self.count * shape.group, -1)
        outs, lses = [], []
        for piece in self.pieces:
            keys, values = self.reader.gather(piece.block, k_pages, v_pages)
            part = lines[:, piece.begin * shape.group : piece.end * shape.group]
            out, lse = attend(padded(part)[None], keys.transpose(0, 1), values.transpose(0, 1), piece.bias, scale)
            outs.append(out[0, :, : part.shape[1]])
            lses.append(lse[0, :, : part.shape[1]])
        merged = outs[0] if len(outs) == 1 else self._merge(outs, lses)
        return merged.view(shape.kv_heads, self.count, shape.group, -1).transpose(0, 1).flatten(1, 2)

    def _merge(self, outs: list[Tensor], lses: list[Tensor]) -> Tensor:
        """As in :mod:`agentcache_kernels.single_rows`, operation by operation: the results must be equal to the bit."""
        group = self.reader.shape.group
        lines = [slice(piece.begin * group, piece.end * group) for piece in self.pieces]
        size = (outs[0].shape[0], self.count * group)
        top = lses[0].new_full(size, -math.inf)
        for part, lse in zip(lines, lses, strict=True):
            torch.maximum(top[:, part], lse, out=top[:, part])
        weights = [lse.sub(top[:, part]).exp_() for part, lse in zip(lines, lses, strict=True)]
        totals = torch.zeros_like(top)
        for part, weight in zip(lines, weights, strict=True):
            totals[:, part] += weight
        merged = outs[0].new_zeros((*size, outs[0].shape[2]))
        for part, weight, out in zip(lines, weights, outs, strict=True):
            merged[:, part] += out.mul_(weight.div_(totals[:, part])[..., None])
        return merged


def tiles_of(span: Span, reader: BlockReader, window: int | None) -> Iterator[RowTile]:
    """Cut a sequence's rows into tiles whose unmerged results fit into memory."""
    blocks = -(-span.context // reader.shape.block_tokens)
    most = max(16, _LINES // (blocks * reader.shape.q_heads))
    for begin in range(0, span.count, most):
        count = min(most, span.count - begin)
        position = span.context - span.count + begin
        yield RowTile(reader, span.first + begin, count, _pieces(span, position, count, reader, window))


def _pieces(span: Span, position: int, count: int, reader: BlockReader, window: int | None) -> list[_Piece]:
    """What rows at ``position .. position + count`` see."""
    tokens = reader.shape.block_tokens
    lowest = 0 if window is None else max(0, position - window + 1) // tokens
    pieces = []
    for index in range(lowest, (position + count - 1) // tokens + 1):
        start = index * tokens
        begin = max(0, start - position)
        end = count if window is None else min(count, start + tokens - 1 + window - position)
        block = reader.plan([Block(span.pages, span.context, index)])
        pieces.append(_Piece(begin, end, block, _bias(position + begin, position + end, start, reader, window)))
    return pieces


def _bias(first: int, last: int, start: int, reader: BlockReader, window: int | None) -> Tensor | None:
    """For rows at ``first .. last`` and the block of keys that begins at ``start``."""
    tokens, group = reader.shape.block_tokens, reader.shape.group
    if first >= start + tokens - 1 and (window is None or last - window <= start):
        return None
    rows = torch.arange(first, last, device=reader.device)[:, None]
    keys = torch.arange(start, start + tokens, device=reader.device)
    hidden = keys > rows
    if window is not None:
        hidden |= keys <= rows - window
    bias = torch.zeros(hidden.shape, device=reader.device).masked_fill_(hidden, -math.inf)
    return padded(bias.repeat_interleave(group, 0))
