"""Putting the results of a row's blocks together.

A *line* is one row's query head; each of its blocks gave an *entry*: a result and the log of its sum of exponentials.

::

    entries of a line, in order of blocks:   e0 e1 e2  -  -  - ... -        '-': none; up to a multiple of 16
    weights = softmax of their logs:         w0 w1 w2  0  0  0 ... 0
    line    = e0 * w0 + e1 * w1 + e2 * w2

An entry's place in its line follows from the row's position, so the same numbers meet in the same order whatever the other
lines hold: the softmax works in whole vectors, in which what is absent adds zeros, and a line's sum is taken entry by entry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

_VECTOR = 16


@dataclass(frozen=True, slots=True)
class Merge:
    """Which entries make up each line."""

    entries: Tensor
    """int64 ``[lines, width]``; where there is none, the line's first."""
    absent: Tensor
    """float32 ``[lines, width]``: 0, or -inf where there is none."""
    offsets: Tensor
    """int64 ``[lines + 1]``: where each line begins among all."""

    @classmethod
    def of(cls, entries: Tensor) -> Merge:
        """From int64 ``[lines, most entries of a line]``, -1 where there is none; every line has a first one."""
        width = -(-entries.shape[1] // _VECTOR) * _VECTOR
        entries = torch.nn.functional.pad(entries, (0, width - entries.shape[1]), value=-1)
        absent = torch.zeros(entries.shape, device=entries.device).masked_fill_(entries < 0, -math.inf)
        offsets = torch.arange(0, entries.numel() + 1, width, device=entries.device)
        # A weight of 0 times what another sequence made of NaN would be NaN: a line refers to entries of its own only.
        return cls(torch.where(entries < 0, entries[:, :1], entries), absent, offsets)

    def __call__(self, outs: Tensor, lses: Tensor) -> Tensor:
        """``[lines, head_dim]`` from ``outs`` ``[entries, head_dim]`` and ``lses`` ``[entries]``."""
        weights = lses[self.entries].add_(self.absent).softmax(-1)
        lines: Tensor = embedding_bag(
            self.entries.view(-1),
            outs,
            self.offsets,
            mode="sum",
            per_sample_weights=weights.view(-1),
            include_last_offset=True,
        )
        return lines
