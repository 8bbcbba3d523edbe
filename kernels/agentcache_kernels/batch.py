"""What one step's attention needs to know, built once and shared by every layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from agentcache_kernels.blocks import BlockReader, PoolShape
from agentcache_kernels.single_rows import SingleRows
from agentcache_kernels.tiles import RowTile, tiles_of

if TYPE_CHECKING:
    from agentcache_kernels.cpu.plan import CompiledPlan


@dataclass(frozen=True, slots=True)
class Span:
    """Rows ``first .. first + count`` of the step: the last ``count`` of ``context`` positions, kept in ``pages``."""

    first: int
    count: int
    context: int
    pages: list[int]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """A step's attention over pools of one shape, under one window."""

    singles: SingleRows | None
    tiles: list[RowTile]


@dataclass(slots=True)
class AttentionBatch:
    """The attention of one step: which rows belong to whom, and where their keys lie.

    ::

        rows of the step:  | sequence 0 ......... | 1 | 2 | sequence 3 ..... |
                             a piece of a prompt    decode  a piece of a prompt
    """

    num_tokens: int
    page_size: int
    device: torch.device
    spans: list[Span]
    _plans: dict[tuple[PoolShape, int | None], AttentionPlan] = field(default_factory=dict)
    _compiled_plans: dict[tuple[PoolShape, int | None], CompiledPlan] = field(default_factory=dict)

    def plan(self, shape: PoolShape, window: int | None) -> AttentionPlan:
        """Built on first use and kept for the other layers.

        Raises:
            ValueError: a page table names a page that the pool does not have.
        """
        if (shape, window) not in self._plans:
            self._plans[shape, window] = self._build(shape, window)
        return self._plans[shape, window]

    def compiled_plan(self, shape: PoolShape, window: int | None) -> CompiledPlan:
        """As :meth:`plan`, for compiled kernels."""
        if (shape, window) not in self._compiled_plans:
            from agentcache_kernels.cpu.plan import compiled_plan

            self._compiled_plans[shape, window] = compiled_plan(self.spans, shape, window)
        return self._compiled_plans[shape, window]

    def _build(self, shape: PoolShape, window: int | None) -> AttentionPlan:
        lowest = min((min(span.pages) for span in self.spans), default=0)
        highest = max((max(span.pages) for span in self.spans), default=0)
        if lowest < 0 or highest >= shape.num_pages:
            raise ValueError(f"got pages {lowest} to {highest}, expected 0 to {shape.num_pages - 1}")
        reader = BlockReader(shape, self.device)
        alone = [span for span in self.spans if span.count == 1]
        singles = SingleRows.build(alone, reader, window) if alone else None
        tiles = [tile for span in self.spans if span.count > 1 for tile in tiles_of(span, reader, window)]
        return AttentionPlan(singles, tiles)


def make_attention_batch(
    query_lens: Sequence[int],
    context_lens: Sequence[int],
    page_tables: Sequence[Sequence[int]],
    page_size: int,
    device: torch.device,
) -> AttentionBatch:
    """Describe one step.  Sequence b's rows are the last ``query_lens[b]`` of its ``context_lens[b]`` positions.

    The rows of all sequences lie one after another.  Page tables may be longer than the context needs; what lies
    beyond is not read.

    Raises:
        ValueError: the lists differ in length, or a table is too short for its context.
    """
    if not len(query_lens) == len(context_lens) == len(page_tables):
        raise ValueError(
            f"got {len(query_lens)} query lengths, {len(context_lens)} context lengths and {len(page_tables)} page "
            "tables, expected as many of each"
        )
    batch = AttentionBatch(0, page_size, device, [])
    for count, context, table in zip(query_lens, context_lens, page_tables, strict=True):
        needed = -(-context // page_size)
        if len(table) < needed:
            raise ValueError(f"got {len(table)} pages for {context} positions, expected {needed} of {page_size} tokens")
        blank = max(0, count - context)  # rows that lie before position 0 and see nothing
        if count > blank:
            pages = table[:needed] if isinstance(table, list) else [int(page) for page in table[:needed]]
            batch.spans.append(Span(batch.num_tokens + blank, count - blank, context, pages))
        batch.num_tokens += count
    return batch
