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

from agentcache_kernels.blocks import Block, BlockRead, BlockReader, attend, padded, padded_count
from agentcache_kernels.merging import Merge

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
    merge: Merge | None
    """Lines are ``[count, q_heads]``; entries are the rows of all products, in the order of ``pieces``.  ``None``: there
    is only one piece, whose weights are 1."""

    def attend(self, q: Tensor, k_pages: Tensor, v_pages: Tensor, scale: float) -> Tensor:
        """``[count, q_heads, head_dim]`` in float32 from the whole step's ``q`` ``[tokens, q_heads, head_dim]``."""
        shape, head_dim = self.reader.shape, q.shape[2]
        rows = q[self.first : self.first + self.count].float()
        lines = rows.view(self.count, shape.kv_heads, shape.group, head_dim).transpose(0, 1)
        lines = lines.reshape(1, shape.kv_heads, self.count * shape.group, head_dim)
        results = []
        for piece in self.pieces:
            keys, values = self.reader.gather(piece.block, k_pages, v_pages)
            part = padded(lines[:, :, piece.begin * shape.group : piece.end * shape.group])
            results.append(attend(part, keys.transpose(0, 1), values.transpose(0, 1), piece.bias, scale))
        if self.merge is None:
            out = results[0][0].view(-1, shape.kv_heads, head_dim)[: self.count * shape.group]
            return out.view(self.count, shape.group, shape.kv_heads, head_dim).transpose(1, 2).flatten(1, 2)
        outs, lses = map(torch.cat, zip(*results, strict=True))
        return self.merge(outs, lses).view(self.count, shape.q_heads, head_dim)


def tiles_of(span: Span, reader: BlockReader, window: int | None) -> Iterator[RowTile]:
    """Cut a sequence's rows into tiles whose unmerged results fit into memory."""
    blocks = -(-span.context // reader.shape.block_tokens)
    most = max(16, _LINES // (blocks * reader.shape.q_heads))
    for begin in range(0, span.count, most):
        count = min(most, span.count - begin)
        position = span.context - span.count + begin
        pieces = _pieces(span, position, count, reader, window)
        merge = _merge(pieces, count, reader) if len(pieces) > 1 else None
        yield RowTile(reader, span.first + begin, count, pieces, merge)


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


def _merge(pieces: list[_Piece], count: int, reader: BlockReader) -> Merge:
    """Where the entries of each line are; ``attend`` gives those of a piece as ``[rows * group (padded), kv_heads]``."""
    kv_heads, group = reader.shape.kv_heads, reader.shape.group
    places = torch.full((count, kv_heads, group, len(pieces)), -1)
    lowest = torch.zeros(count, dtype=torch.int64)  # how many pieces lie before a row's window
    for piece in pieces:
        lowest[piece.end :] += 1
    first = 0
    for number, piece in enumerate(pieces):
        rows = torch.arange(piece.begin, piece.end)
        size = (padded_count(len(rows) * group), kv_heads)
        numbers = torch.arange(first, first + math.prod(size)).view(size)[: len(rows) * group]
        places[rows, :, :, number - lowest[rows]] = numbers.view(-1, group, kv_heads).transpose(1, 2)
        first += math.prod(size)
    return Merge.of(places.flatten(0, 2).to(reader.device))


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
