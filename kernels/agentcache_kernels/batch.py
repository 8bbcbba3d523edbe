"""What one step's attention needs to know, built once and shared by every layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from agentcache_kernels.product import PromptSpan
from agentcache_kernels.scattered import DecodeRow, PoolShape, ScatteredKeys


@dataclass(slots=True)
class AttentionBatch:
    """The attention of one step: which rows belong to whom, and where their keys lie.

    ::

        rows of the step:  | sequence 0 ......... | 1 | 2 | sequence 3 ..... |
                             span of a prompt       decode rows   span
    """

    num_tokens: int
    page_size: int
    spans: list[PromptSpan]
    """Rows that share one product with their sequence's keys: pieces of prompts."""
    decode_rows: list[DecodeRow]
    """Rows that stand alone."""
    _scattered: dict[tuple[PoolShape, int | None], ScatteredKeys] = field(default_factory=dict)

    def scattered(self, shape: PoolShape, window: int | None) -> ScatteredKeys:
        """The decode rows' key slots for pools of this shape, built on first use and kept for the other layers."""
        if (shape, window) not in self._scattered:
            self._scattered[shape, window] = ScatteredKeys.build(self.decode_rows, shape, window)
        return self._scattered[shape, window]


def make_attention_batch(
    query_lens: Sequence[int],
    context_lens: Sequence[int],
    page_tables: Sequence[Sequence[int]],
    page_size: int,
    device: torch.device,
    *,
    decode: Sequence[bool] | None = None,
) -> AttentionBatch:
    """Describe one step.  Sequence b's rows are the last ``query_lens[b]`` of its ``context_lens[b]`` positions.

    The rows of all sequences lie one after another.  Page tables may be longer than the context needs; what lies
    beyond is not read.

    Args:
        decode: which sequences generate.  On a CPU the single row of such a sequence takes a path of its own, which
            rounds differently in the last bit; a row of a prompt gives the same bits however its prompt was cut when
            it is not marked.  By default every sequence with one row is taken to generate.

    Raises:
        ValueError: the lists differ in length, or a table is too short for its context.
    """
    if decode is None:
        decode = [count == 1 for count in query_lens]
    if not len(query_lens) == len(context_lens) == len(page_tables) == len(decode):
        raise ValueError(
            f"got {len(query_lens)} query lengths, {len(context_lens)} context lengths, {len(page_tables)} page tables "
            f"and {len(decode)} decode marks, expected as many of each"
        )
    batch = AttentionBatch(0, page_size, [], [])
    for count, context, table, alone in zip(query_lens, context_lens, page_tables, decode, strict=True):
        needed = -(-context // page_size)
        if len(table) < needed:
            raise ValueError(f"got {len(table)} pages for {context} positions, expected {needed} of {page_size} tokens")
        if count and context:
            pages = torch.tensor(table[:needed], dtype=torch.int64, device=device)
            if alone and count == 1:
                batch.decode_rows.append(DecodeRow(batch.num_tokens, context, pages))
            else:
                batch.spans.append(PromptSpan(batch.num_tokens, count, context, pages, page_size))
        batch.num_tokens += count
    return batch
