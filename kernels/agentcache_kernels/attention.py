"""Causal attention that reads keys and values through page tables.

Paged attention: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
SOSP 2023.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from agentcache_kernels.batch import AttentionBatch, SequenceSpan


def paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    batch: AttentionBatch,
    *,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """Attention of a step's rows over their sequences' pages, for any mix of prefill chunks and decode rows.

    Args:
        q: ``[tokens, q_heads, head_dim]``, the rows of all sequences one after another.
        k_pages, v_pages: ``[kv_heads, num_pages, page_size, head_dim]``; ``q_heads`` is a multiple of ``kv_heads``.
        scale: multiplies the scores.
        window: a row at position p sees the keys of positions ``p - window + 1 .. p``; ``None`` sees all up to p.

    Returns:
        ``[tokens, q_heads, head_dim]`` in the type of ``q``; rows that see no key are 0.
    """
    if window is not None and window < 1:
        raise ValueError(f"got window {window}, expected at least 1")
    out = torch.zeros_like(q)
    for span in batch.spans:
        rows = slice(span.first, span.first + span.count)
        out[rows] = _attend(q[rows], k_pages, v_pages, span, scale=scale, window=window)
    return out


def _attend(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, span: SequenceSpan, *, scale: float, window: int | None
) -> Tensor:
    keys = _gather(k_pages, span)
    values = _gather(v_pages, span)
    kv_heads, length, head_dim = keys.shape
    seen = span.mask(length, window)
    # [kv_heads, group * rows, head_dim]: the query heads that share a key head become more rows of one product.
    folded = q.float().view(span.count, kv_heads, -1, head_dim).permute(1, 2, 0, 3)
    out = scaled_dot_product_attention(
        folded, keys.float()[:, None], values.float()[:, None], attn_mask=seen, scale=scale, enable_gqa=False
    )
    out = out.masked_fill(~seen.any(1)[:, None], 0)
    return out.permute(2, 0, 1, 3).reshape(q.shape).to(q.dtype)


def _gather(pages: Tensor, span: SequenceSpan) -> Tensor:
    """``[kv_heads, pages * page_size, head_dim]``; slots past the context are zeroed: they may hold NaN."""
    gathered = pages.index_select(1, span.pages).flatten(1, 2)
    gathered[:, span.context :] = 0
    return gathered
