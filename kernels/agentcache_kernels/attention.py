"""Causal attention that reads keys and values through page tables.

Paged attention: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
SOSP 2023.  Partial results and their merging by log-sum-exp: Dao et al., "Flash-Decoding for long-context inference", 2023.
"""

from __future__ import annotations

import torch
from torch import Tensor

from agentcache_kernels.batch import AttentionBatch
from agentcache_kernels.blocks import PoolShape


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

    On a CPU a row's bits depend on its query, its position and its keys and values alone: neither on the other rows of
    the step, nor on how its prompt was cut, nor on where its pages lie.  Slots that hold no token of a sequence never
    reach its result, whatever they contain.  Half types are computed in float32.

    Args:
        q: ``[tokens, q_heads, head_dim]``, the rows of all sequences one after another; rows after them are padding.
        k_pages, v_pages: ``[kv_heads, num_pages, page_size, head_dim]``, contiguous; ``q_heads`` is a multiple of
            ``kv_heads``.  Keys in float32 may be turned (:func:`keys_are_turned`): then compiled kernels do the work.
        scale: multiplies the scores.
        window: a row at position p sees the keys of positions ``p - window + 1 .. p``; ``None`` sees all up to p.

    Returns:
        ``[tokens, q_heads, head_dim]`` in the type of ``q``; rows that see no key, and padding, are 0.

    Raises:
        ValueError: shapes that do not belong together, a page that the pool does not have, or a window below 1.
    """
    _check(q, k_pages, v_pages, batch, window)
    shape = PoolShape(q.shape[1], *k_pages.shape[:3])
    if keys_are_turned(k_pages):
        from agentcache_kernels.cpu.attention import attend

        return attend(q.contiguous(), k_pages, v_pages, batch.compiled_plan(shape, window), scale)
    plan = batch.plan(shape, window)
    out = torch.zeros_like(q)
    if plan.singles is not None:
        out[plan.singles.rows] = plan.singles.attend(q, k_pages, v_pages, scale).to(q.dtype)
    for tile in plan.tiles:
        out[tile.first : tile.first + tile.count] = tile.attend(q, k_pages, v_pages, scale)
    return out


def turned(k_pages: Tensor) -> Tensor:
    """The same keys, their memory in order ``[kv_heads, num_pages, head_dim, page_size]``."""
    return k_pages.transpose(2, 3).contiguous().transpose(2, 3)


def keys_are_turned(k_pages: Tensor) -> bool:
    """Whether the memory of ``k_pages`` is as :func:`turned` makes it."""
    return not k_pages.is_contiguous() and bool(k_pages.transpose(2, 3).is_contiguous())


def _check(q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: AttentionBatch, window: int | None) -> None:
    if window is not None and window < 1:
        raise ValueError(f"got window {window}, expected at least 1")
    if k_pages.shape != v_pages.shape or k_pages.shape[2:] != (batch.page_size, q.shape[2]):
        raise ValueError(
            f"got keys {list(k_pages.shape)} and values {list(v_pages.shape)}, expected both as "
            f"[kv_heads, num_pages, {batch.page_size}, {q.shape[2]}]"
        )
    if q.shape[0] < batch.num_tokens or q.shape[1] % k_pages.shape[0]:
        raise ValueError(
            f"got queries {list(q.shape)}, expected at least {batch.num_tokens} rows and a multiple of {k_pages.shape[0]} heads"
        )
