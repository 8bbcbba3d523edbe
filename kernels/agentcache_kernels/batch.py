"""What one step's attention needs to know, built once and shared by every layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True)
class SequenceSpan:
    """One sequence's rows and the keys they see.

    ::

        positions:  0 ................................ context
        query rows:                    [ last `count` of them ]   (rows `first` .. `first + count` of the step)
        pages:      [ page ][ page ][ page ][ page ][ last..  ]   whole pages are read; slots past `context` are zeroed
    """

    first: int
    count: int
    context: int
    pages: Tensor
    """int64 ``[ceil(context / page_size)]``."""
    masks: dict[int | None, Tensor] = field(default_factory=dict)

    def mask(self, length: int, window: int | None) -> Tensor:
        """Which keys each row sees: bool ``[count, length]``, built once per window and kept."""
        if window not in self.masks:
            device = self.pages.device
            rows = torch.arange(self.context - self.count, self.context, device=device)[:, None]
            keys = torch.arange(length, device=device)[None, :]
            seen = keys <= rows
            if window is not None:
                seen &= keys > rows - window
            self.masks[window] = seen
        return self.masks[window]


@dataclass(slots=True)
class AttentionBatch:
    """The attention of one step: which rows belong to whom, and where their keys lie."""

    num_tokens: int
    page_size: int
    spans: list[SequenceSpan]


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
    spans = []
    first = 0
    for count, context, table in zip(query_lens, context_lens, page_tables, strict=True):
        needed = -(-context // page_size)
        if len(table) < needed:
            raise ValueError(f"got {len(table)} pages for {context} positions, expected {needed} of {page_size} tokens")
        if count and context:
            pages = torch.tensor(table[:needed], dtype=torch.int64, device=device)
            spans.append(SequenceSpan(first, count, context, pages))
        first += count
    return AttentionBatch(first, page_size, spans)
