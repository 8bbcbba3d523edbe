"""Attention of rows that are alone in their sequence, for all such sequences of a step together: mostly decode rows.

A block that several sequences hold, because they share their beginning, is read once for all of them:

::

    sequence 0:  | A | B | C |        blocks to read        A for 0 1 2     B for 0 1     C for 0     D for 1
    sequence 1:  | A | B | D |        products of           3 rows          2 rows        1 row       1 row
    sequence 2:  | A |                merged by sequence    rank 0: 0 1 2 | rank 1: 0 1 | rank 2: 0 1
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from agentcache_kernels.blocks import Block, BlockRead, BlockReader, PoolShape, attend, padded_count
from agentcache_kernels.merging import Merge

if TYPE_CHECKING:
    from agentcache_kernels.batch import Span

_BLOCKS_AT_ONCE = 8
"""So many blocks' keys and values stay in the processor's caches between gathering and multiplying."""


class _Item(NamedTuple):
    """A block, and the sequences that see it."""

    block: Block
    owners: list[int]
    ranks: list[int]
    """For each owner, how many of its blocks come before this one."""


@dataclass(frozen=True, slots=True)
class _Read:
    """Blocks that have equally many owners each."""

    blocks: BlockRead
    lines: Tensor
    """int64, for each head of keys, each block, and each row of the product: which line of the queries it is, seen as
    ``[sequences * q_heads, head_dim]``."""
    bias: Tensor | None
    """float32 ``[kv_heads, blocks, rows, block_tokens]``; ``None``: every key is seen."""


@dataclass(frozen=True, slots=True)
class SingleRows:
    """One row each of several sequences."""

    reader: BlockReader
    rows: Tensor
    """int64 ``[sequences]``: rows of the step."""
    reads: list[_Read]
    merge: Merge
    """Lines are ``[sequences, q_heads]``; entries are the rows of all products, in the order of ``reads``."""

    @classmethod
    def build(cls, spans: Sequence[Span], reader: BlockReader, window: int | None) -> SingleRows:
        seen = [_seen(span, reader.shape.block_tokens, window) for span in spans]
        reads = []
        most = max(map(len, seen))
        places = torch.full((len(spans), reader.shape.kv_heads, reader.shape.group, most), -1)
        entries = 0
        for part in _parts(_items(spans, seen, reader.shape, window)):
            read = _read(part, reader, window)
            reads.append(read)
            entries += _place(part, reader.shape, entries, places)
        rows = torch.tensor([span.first for span in spans], device=reader.device)
        return cls(reader, rows, reads, Merge.of(places.flatten(0, 2).to(reader.device)))

    def attend(self, q: Tensor, k_pages: Tensor, v_pages: Tensor, scale: float) -> Tensor:
        """``[sequences, q_heads, head_dim]`` in float32 from the whole step's ``q`` ``[tokens, q_heads, head_dim]``."""
        kv_heads, head_dim = self.reader.shape.kv_heads, q.shape[2]
        lines = q[self.rows].float().view(-1, head_dim)
        results = []
        for read in self.reads:
            keys, values = self.reader.gather(read.blocks, k_pages, v_pages)
            rows = lines.index_select(0, read.lines).view(kv_heads, read.blocks.blocks, -1, head_dim)
            results.append(attend(rows, keys, values, read.bias, scale))
        outs, lses = results[0] if len(results) == 1 else map(torch.cat, zip(*results, strict=True))
        return self.merge(outs, lses).view(-1, q.shape[1], head_dim)


def _seen(span: Span, tokens: int, window: int | None) -> range:
    """Numbers of the blocks that the sequence's last position sees anything of."""
    first = 0 if window is None else max(0, span.context - window) // tokens
    return range(first, (span.context - 1) // tokens + 1)


def _items(spans: Sequence[Span], seen: Sequence[range], shape: PoolShape, window: int | None) -> list[_Item]:
    """Every block once, those with equally many owners together."""
    items: list[_Item] = []
    whole: dict[tuple[int, ...], _Item] = {}
    for owner, (span, numbers) in enumerate(zip(spans, seen, strict=True)):
        for rank, index in enumerate(numbers):
            item = _Item(Block(span.pages, span.context, index), [owner], [rank])
            start, end = index * shape.block_tokens, (index + 1) * shape.block_tokens
            if end <= span.context and (window is None or start >= span.context - window):
                pages = span.pages[index * shape.block_pages : (index + 1) * shape.block_pages]
                shared = whole.setdefault((index, *pages), item)
                if shared is not item:
                    shared.owners.append(owner)
                    shared.ranks.append(rank)
                    continue
            items.append(item)
    return sorted(items, key=lambda item: (len(item.owners), item.block.index))


def _parts(items: Sequence[_Item]) -> Iterator[list[_Item]]:
    """A few at a time, all with equally many owners."""
    for _, group in groupby(items, key=lambda item: len(item.owners)):
        alike = list(group)
        for start in range(0, len(alike), _BLOCKS_AT_ONCE):
            yield alike[start : start + _BLOCKS_AT_ONCE]


def _read(part: Sequence[_Item], reader: BlockReader, window: int | None) -> _Read:
    shape = reader.shape
    owners = torch.tensor([item.owners for item in part])  # [blocks, owners]
    heads = torch.arange(shape.q_heads).view(-1, 1, 1, shape.group)
    lines = (owners[:, :, None] * shape.q_heads + heads).flatten(2)  # [kv_heads, blocks, owners * group]
    missing = padded_count(lines.shape[2]) - lines.shape[2]
    lines = torch.cat((lines, lines[:, :, :1].expand(-1, -1, missing)), 2)
    bias = None
    if owners.shape[1] == 1:
        bias = _bias([item.block for item in part], reader, window)[:, None]
        bias = bias.expand(shape.kv_heads, -1, lines.shape[2], -1)
    blocks = reader.plan([item.block for item in part])
    return _Read(blocks, lines.flatten().to(reader.device), bias)


def _place(part: Sequence[_Item], shape: PoolShape, first: int, places: Tensor) -> int:
    """Note in ``places`` ``[sequences, kv_heads, group, ranks]`` where the entries of ``part`` are; how many these are.

    ``attend`` gives them as ``[kv_heads, rows, blocks]``.
    """
    rows = padded_count(len(part[0].owners) * shape.group)
    size = (shape.kv_heads, rows, len(part))
    numbers = torch.arange(first, first + math.prod(size)).view(size)
    for block, item in enumerate(part):
        for at, (owner, rank) in enumerate(zip(item.owners, item.ranks, strict=True)):
            places[owner, :, :, rank] = numbers[:, at * shape.group : (at + 1) * shape.group, block]
    return math.prod(size)


def _bias(blocks: Sequence[Block], reader: BlockReader, window: int | None) -> Tensor:
    """``[blocks, block_tokens]``: 0 where the last position of a block's sequence sees the key, -inf where not."""
    tokens = reader.shape.block_tokens
    contexts = torch.tensor([block.context for block in blocks], device=reader.device)[:, None]
    starts = torch.tensor([block.index * tokens for block in blocks], device=reader.device)[:, None]
    keys = starts + torch.arange(tokens, device=reader.device)
    hidden = keys >= contexts
    if window is not None:
        hidden |= keys < contexts - window
    return torch.zeros(hidden.shape, device=reader.device).masked_fill_(hidden, -math.inf)
