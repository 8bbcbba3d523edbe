"""Attention of several rows of one sequence: gather its pages once, then one fused product.

On a CPU a row comes out with the same bits however its prompt was cut into chunks, as long as it goes through here.
Four shapes of the underlying matrix products would break that, so they never occur:

* fewer than four rows in the last tile of rows: the rows are padded to a multiple of four;
* keys that do not start on a block of the fused kernel (512): reading starts on one;
* keys that do not fill the last vector of 16 floats (AVX-512): reading ends at a multiple of 16;
* a last block of more than 192 and fewer than 384 keys, whose sum over keys Intel MKL splits in two halves: it is padded
  to 384.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

_KEY_BLOCK = 512
_VECTOR = 16


@dataclass(slots=True)
class KeyRange:
    """The keys that a span reads under one window.

    ::

        positions:  0 .... start ..................... context .... start + length
        read:              [ pages .......................................... )
        slots holding rubbish, zeroed:                [ context ............. )
    """

    start: int
    length: int
    pages: Tensor
    """int64, enough whole pages for ``length`` slots; the last page repeats where the table ends."""
    bias: Tensor
    """float32 ``[padded rows, length]``: 0 where the row sees the key, -inf where not."""


@dataclass(slots=True)
class PromptSpan:
    """Rows ``first .. first + count`` of the step: the last ``count`` of the sequence's ``context`` positions."""

    first: int
    count: int
    context: int
    pages: Tensor
    """int64 ``[ceil(context / page_size)]``."""
    page_size: int
    _ranges: dict[int | None, KeyRange] = field(default_factory=dict)

    @property
    def padded_count(self) -> int:
        return -(-self.count // 4) * 4

    @property
    def blank(self) -> int:
        """Leading rows that lie before position 0 and see nothing."""
        return max(0, self.count - self.context)

    def keys(self, window: int | None) -> KeyRange:
        """What to read, built on first use and kept for the other layers."""
        if window not in self._ranges:
            self._ranges[window] = self._key_range(window)
        return self._ranges[window]

    def _key_range(self, window: int | None) -> KeyRange:
        start = 0
        if window is not None:
            first_seen = max(0, self.context - self.count - window + 1)
            block = math.lcm(_KEY_BLOCK, self.page_size)
            start = first_seen // block * block
        length = -(-(self.context - start) // _VECTOR) * _VECTOR
        tail = length % _KEY_BLOCK
        if 192 < tail < 384:
            length += 384 - tail
        table = torch.arange(start // self.page_size, -(-(start + length) // self.page_size), device=self.pages.device)
        pages = self.pages[table.clamp(max=len(self.pages) - 1)]
        return KeyRange(start, length, pages, self._bias(start, length, window))

    def _bias(self, start: int, length: int, window: int | None) -> Tensor:
        device = self.pages.device
        bias = torch.zeros((self.padded_count, length), device=device)
        rows = torch.arange(self.context - self.count + self.blank, self.context, device=device)[:, None]
        keys = torch.arange(start, start + length, device=device)[None, :]
        hidden = keys > rows
        if window is not None:
            hidden |= keys <= rows - window
        # Blank and padding rows see everything: an empty softmax would be NaN, and nobody reads them.
        bias[self.blank : self.count].masked_fill_(hidden, -math.inf)
        return bias


def attend_span(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, span: PromptSpan, *, scale: float, window: int | None
) -> Tensor:
    """``[count, q_heads, head_dim]`` for the span's rows ``q`` (same shape), computed in float32."""
    read = span.keys(window)
    keys, values = (_gather(pages, read, span.context) for pages in (k_pages, v_pages))
    rows = q.float().transpose(0, 1)
    if span.padded_count > span.count:
        rows = torch.nn.functional.pad(rows, (0, 0, 0, span.padded_count - span.count))
    out = scaled_dot_product_attention(
        rows[None], keys[None], values[None], attn_mask=read.bias, scale=scale, enable_gqa=True
    )
    out = out[0, :, : span.count].transpose(0, 1)
    if span.blank:
        out[: span.blank] = 0
    return out


def _gather(pages: Tensor, read: KeyRange, context: int) -> Tensor:
    """float32 ``[kv_heads, length, head_dim]``; slots past the context are zeroed: they may hold NaN."""
    gathered = pages.index_select(1, read.pages).flatten(1, 2)[:, : read.length].float()
    gathered[:, context - read.start :] = 0
    return gathered
