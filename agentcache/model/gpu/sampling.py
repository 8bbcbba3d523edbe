"""One draw for every row of a step, by one kernel; penalties, biases and masks, which few requests have, before it."""

from __future__ import annotations

import math
from collections.abc import Sequence as Rows
from typing import NamedTuple

import torch
from torch import Tensor

from agentcache.model.sampler import NonFiniteLogitsError, adjust, adjusts, logprobs
from agentcache.request import Sequence, TokenLogprob
from agentcache_kernels.gpu import Draws, on_device, sample_tokens

COLUMNS: dict[str, torch.dtype] = {
    "temperatures": torch.float32,
    "top_ks": torch.int32,
    "top_ps": torch.float32,
    "min_ps": torch.float32,
    "seeds": torch.int64,
    "positions": torch.int64,
}
"""The fields of :class:`Draws`."""


class DrawRow(NamedTuple):
    """What is asked of one row, in the order of ``COLUMNS``."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    position: int

    @classmethod
    def of(cls, sequence: Sequence) -> DrawRow:
        params = sequence.params
        seed = sequence.seed % 2**64
        return cls(
            0.0 if params.greedy else params.temperature,
            min(max(params.top_k, 0), 2**31 - 1),
            params.top_p,
            params.min_p,
            seed - 2**64 if seed >= 2**63 else seed,  # the same 64 bits
            len(sequence.tokens),
        )


def draw(logits: Tensor, sequences: Rows[Sequence]) -> Tensor:
    """Queue one draw a row of float32 ``[rows, vocab]``; int32 ``[rows]``, -1 where there is nothing to draw from."""
    columns = zip(*map(DrawRow.of, sequences), strict=True)
    pairs = zip(columns, COLUMNS.values(), strict=True)
    asked = Draws(*(on_device(values, dtype, logits.device) for values, dtype in pairs))
    tokens = torch.empty(len(sequences), dtype=torch.int32, device=logits.device)
    sample_tokens(logits, asked, tokens).run()
    return tokens


def needs_adjusting(sequences: Rows[Sequence]) -> bool:
    """Whether the kernel must not draw from the logits as they are."""
    return any(adjusts(sequence) for sequence in sequences)


def adjusted(logits: Tensor, sequences: Rows[Sequence]) -> Tensor:
    """Penalties, biases and masks on the rows that have any, in float64; other rows as they are.

    Masks are computed here, on the host, while the device still runs the forward pass.
    """
    special = [row for row, sequence in enumerate(sequences) if adjusts(sequence)]
    if not special:
        return logits
    rows = on_device(special, torch.int64, logits.device)
    wide = logits[rows].double()
    adjust(wide, [sequences[row] for row in special])
    return logits.index_copy(0, rows, wide.float())


def reported(logits: Tensor, tokens: Tensor, sequences: Rows[Sequence]) -> list[TokenLogprob]:
    """Wait for ``tokens``; with log-probabilities, which cost a wait more, where they are asked for.

    Raises:
        NonFiniteLogitsError: naming the first sequence that has nothing to draw from.
    """
    ids: list[int] = tokens.tolist()
    for token, sequence in zip(ids, sequences, strict=True):
        if token < 0:
            raise NonFiniteLogitsError(sequence)
    wanted = [sequence.params.logprobs for sequence in sequences]
    if all(count is None for count in wanted):
        return [TokenLogprob(token, math.nan) for token in ids]
    return logprobs(logits, tokens.long(), wanted)
