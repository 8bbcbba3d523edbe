"""Causal attention that reads keys and values through page tables.

Paged attention: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
SOSP 2023.
"""

from __future__ import annotations

import torch
from torch import Tensor

from agentcache_kernels.batch import AttentionBatch
from agentcache_kernels.product import PromptSpan, attend_span
from agentcache_kernels.scattered import PoolShape


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

    Slots that hold no token of a sequence never reach its result, whatever they contain.  Half types are computed in
    float32.

    Args:
        q: ``[tokens, q_heads, head_dim]``, the rows of all sequences one after another.
        k_pages, v_pages: ``[kv_heads, num_pages, page_size, head_dim]``; ``q_heads`` is a multiple of ``kv_heads``.
        scale: multiplies the scores.
        window: a row at position p sees the keys of positions ``p - window + 1 .. p``; ``None`` sees all up to p.

    Returns:
        ``[tokens, q_heads, head_dim]`` in the type of ``q``; rows that see no key are 0.

    Raises:
        ValueError: shapes that do not belong together, or a window below 1.
    """
    _check(q, k_pages, v_pages, batch, window)
    out = torch.zeros_like(q)
    spans = batch.spans
    if q.device.type == "cpu" and q.dtype == k_pages.dtype == torch.float32:
        if batch.decode_rows:
            scattered = batch.scattered(PoolShape(q.shape[1], *k_pages.shape[:3]), window)
            out[scattered.rows] = scattered.attend(q, k_pages, v_pages, scale)
    else:
        spans = spans + [PromptSpan(r.row, 1, r.context, r.pages, batch.page_size) for r in batch.decode_rows]
    for span in spans:
        rows = slice(span.first, span.first + span.count)
        out[rows] = attend_span(q[rows], k_pages, v_pages, span, scale=scale, window=window)
    return out


def _check(q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: AttentionBatch, window: int | None) -> None:
    if window is not None and window < 1:
        raise ValueError(f"got window {window}, expected at least 1")
    if k_pages.shape != v_pages.shape or k_pages.shape[2:] != (batch.page_size, q.shape[2]):
        raise ValueError(
            f"got keys {list(k_pages.shape)} and values {list(v_pages.shape)}, expected both as "
            f"[kv_heads, num_pages, {batch.page_size}, {q.shape[2]}]"
        )
    if q.shape[0] != batch.num_tokens or q.shape[1] % k_pages.shape[0]:
        raise ValueError(
            f"got queries {list(q.shape)}, expected {batch.num_tokens} rows and a multiple of {k_pages.shape[0]} heads"
        )
