"""Attention of rows that are alone in their sequence, for all such sequences of a step together: mostly decode rows.

A block that several sequences hold, because they share their beginning, is read once for all of them:

::

    sequence 0:  | A | B | C |        blocks to read        A for 0 1 2     B for 0 1     C for 0     D for 1
    sequence 1:  | A | B | D |        products of           3 rows          2 rows        1 row       1 row
    sequence 2:  | A |                merged by sequence    rank 0: 0 1 2 | rank 1: 0 1 | rank 2: 0 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from agentcache_kernels.blocks import Block, BlockRead, BlockReader, attend, padded

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
    owners: Tensor
    """int64 ``[blocks, owners of each]``."""
    bias: Tensor | None
    """float32 ``[blocks, 1, block_tokens]``; ``None``: every key is seen."""


@dataclass(frozen=True, slots=True)
class SingleRows:
    """One row each of several sequences, the one with the most blocks first.

    A *pair* is a sequence and one of its blocks.
    """

    reader: BlockReader
    rows: Tensor
    """int64 ``[sequences]``: rows of the step."""
    reads: list[_Read]
    order: Tensor | None
    """int64 ``[pairs]``: where among the results of ``reads`` each pair is, in order of ranks, then of sequences; ``None``:
    they are in that order."""
    owners: Tensor
    """int64 ``[pairs]``: whose each pair is, in that order."""
    counts: list[int]
    """How many sequences have a block of each rank: the first so many."""

    @classmethod
    def build(cls, spans: Sequence[Span], reader: BlockReader, window: int | None) -> SingleRows:
        seen = [_seen(span, reader.shape.block_tokens, window) for span in spans]
        by_length = sorted(range(len(spans)), key=lambda i: -len(seen[i]))
        spans, seen = [spans[i] for i in by_length], [seen[i] for i in by_length]
        items = _items(spans, seen, reader, window)
        pairs = [pair for item in items for pair in zip(item.ranks, item.owners, strict=True)]
        order = sorted(range(len(pairs)), key=pairs.__getitem__)
        return cls(
            reader,
            torch.tensor([span.first for span in spans], device=reader.device),
            _reads(items, reader, window),
            None if order == list(range(len(pairs))) else torch.tensor(order, device=reader.device),
            torch.tensor([pairs[place][1] for place in order], device=reader.device),
            [sum(len(blocks) > rank for blocks in seen) for rank in range(len(seen[0]))],
        )

    def attend(self, q: Tensor, k_pages: Tensor, v_pages: Tensor, scale: float) -> Tensor:
        """``[sequences, q_heads, head_dim]`` in float32 from the whole step's ``q`` ``[tokens, q_heads, head_dim]``."""
        shape, head_dim = self.reader.shape, q.shape[2]
        lines = q[self.rows].float().view(-1, shape.kv_heads, shape.group, head_dim).transpose(0, 1)
        alone = padded(lines)
        split = (shape.kv_heads, -1, shape.group)  # [kv_heads, pairs, group]
        outs, lses = [], []
        for read in self.reads:
            keys, values = self.reader.gather(read.blocks, k_pages, v_pages)
            owners = read.owners.shape[1]
            rows = alone[:, read.owners[:, 0]] if owners == 1 else padded(lines[:, read.owners].flatten(2, 3))
            bias = None if read.bias is None else read.bias.expand(shape.kv_heads, -1, rows.shape[2], -1)
            out, lse = attend(rows, keys, values, bias, scale)
            outs.append(out[:, :, : owners * shape.group].reshape(*split, head_dim).transpose(0, 1))
            lses.append(lse[:, :, : owners * shape.group].reshape(split).transpose(0, 1))
        pairs, weights = torch.cat(outs), torch.cat(lses)
        if self.order is not None:
            pairs, weights = pairs[self.order], weights[self.order]
        return self._merge(pairs, weights).flatten(1, 2)

    def _merge(self, outs: Tensor, lses: Tensor) -> Tensor:
        """Sum of ``outs`` ``[pairs, kv_heads, group, head_dim]`` by sequence, weighted by the exponentials of ``lses``.

        Sums are taken one block after another, as in :mod:`agentcache_kernels.tiles`: their order is part of the result.
        """
        if len(self.counts) == 1:
            return outs
        top = lses[: self.counts[0]].clone()
        for count, part in zip(self.counts, lses.split(self.counts), strict=True):
            torch.maximum(top[:count], part, out=top[:count])
        weights = (lses - top[self.owners]).exp_()
        totals = torch.zeros_like(top)
        for count, part in zip(self.counts, weights.split(self.counts), strict=True):
            totals[:count] += part
        outs.mul_(weights.div_(totals[self.owners])[..., None])
        merged = outs.new_zeros((len(top), *outs.shape[1:]))
        for count, part in zip(self.counts, outs.split(self.counts), strict=True):
            merged[:count] += part
        return merged


def _seen(span: Span, tokens: int, window: int | None) -> range:
    """Numbers of the blocks that the sequence's last position sees anything of."""
    first = 0 if window is None else max(0, span.context - window) // tokens
    return range(first, (span.context - 1) // tokens + 1)


def _items(spans: Sequence[Span], seen: Sequence[range], reader: BlockReader, window: int | None) -> list[_Item]:
    """Every block once, those with equally many owners together."""
    shape = reader.shape
    items: list[_Item] = []
    whole: dict[tuple[int, ...], _Item] = {}
    for owner, (span, numbers) in enumerate(zip(spans, seen, strict=True)):
        for index in numbers:
            block = Block(span.pages, span.context, index)
            item = _Item(block, [owner], [index - numbers.start])
            start, end = index * shape.block_tokens, (index + 1) * shape.block_tokens
            if end <= span.context and (window is None or start >= span.context - window):
                pages = span.pages[index * shape.block_pages : (index + 1) * shape.block_pages]
                shared = whole.setdefault((index, *pages), item)
                if shared is not item:
                    shared.owners.append(owner)
                    shared.ranks.append(index - numbers.start)
                    continue
            items.append(item)
    return sorted(items, key=lambda item: (len(item.owners), item.block.index))


def _reads(items: Sequence[_Item], reader: BlockReader, window: int | None) -> list[_Read]:
    reads = []
    for owners, group in groupby(items, key=lambda item: len(item.owners)):
        alike = list(group)
        for start in range(0, len(alike), _BLOCKS_AT_ONCE):
            part = alike[start : start + _BLOCKS_AT_ONCE]
            blocks = [item.block for item in part]
            bias = _bias(blocks, reader, window) if owners == 1 else None
            whose = torch.tensor([item.owners for item in part], device=reader.device)
            reads.append(_Read(reader.plan(blocks), whose, bias))
    return reads


def _bias(blocks: Sequence[Block], reader: BlockReader, window: int | None) -> Tensor:
    """0 where the last position of a block's sequence sees the key, -inf where not."""
    tokens = reader.shape.block_tokens
    contexts = torch.tensor([block.context for block in blocks], device=reader.device)[:, None]
    starts = torch.tensor([block.index * tokens for block in blocks], device=reader.device)[:, None]
    keys = starts + torch.arange(tokens, device=reader.device)
    hidden = keys >= contexts
    if window is not None:
        hidden |= keys < contexts - window
    return torch.zeros(hidden.shape, device=reader.device).masked_fill_(hidden, -math.inf)[:, None]
