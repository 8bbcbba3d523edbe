# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""Rotary position embedding of queries and keys, fused with writing keys and values to their pages.

Su et al., "RoFormer", 2021, with the pairs ``(i, i + head_dim / 2)``.  Optionally every query and key head is normalised
first (Henry et al., "Query-Key Normalization for Transformers", 2020, with RMSNorm as in Qwen3)::

    heads of a row:   | queries ........ | keys .... | values .. |
                        norm, turn         norm, turn    as it is
    goes to:            q_out              page          page
"""

from dataclasses import dataclass

import torch
import triton.language as tl
from torch import Tensor

from agentcache_kernels.gpu.launch import Launch, host_lists, power_of_two
from agentcache_kernels.gpu.tuning import architecture, blocks_for


@host_lists("positions", "slots")
def rotary_write_kernel(
    q_out,
    k_pages,
    v_pages,
    heads,
    cos,
    sin,
    norm,
    positions,
    slots,
    heads_stride,
    head_stride,
    eps,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HAS_NORM: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    half = HEAD_DIM // 2
    dims = tl.arange(0, BLOCK_HALF)
    inside = (dims < half)[None, :]
    at = row * heads_stride + head[:, None] * HEAD_DIM + dims[None, :]
    real = (head < Q_HEADS + 2 * KV_HEADS)[:, None] & inside
    first_raw = tl.load(heads + at, mask=real, other=0.0)
    second_raw = tl.load(heads + at + half, mask=real, other=0.0)
    first = first_raw.to(tl.float32)
    second = second_raw.to(tl.float32)

    if HAS_NORM:
        squares = tl.sum(first * first + second * second, 1)
        inverse = tl.rsqrt(squares / HEAD_DIM + eps)[:, None]
        turning = (head < Q_HEADS + KV_HEADS)[:, None] & inside
        weights = norm + head[:, None] * HEAD_DIM + dims[None, :]
        first = first * inverse * tl.load(weights, mask=turning, other=0.0).to(tl.float32)
        second = second * inverse * tl.load(weights + half, mask=turning, other=0.0).to(tl.float32)

    angle = tl.load(positions + row) * half + dims
    c = tl.load(cos + angle, mask=dims < half, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin + angle, mask=dims < half, other=0.0).to(tl.float32)[None, :]
    turned_first = first * c - second * s
    turned_second = second * c + first * s

    target = q_out + (row * Q_HEADS + head)[:, None] * HEAD_DIM + dims[None, :]
    is_query = (head < Q_HEADS)[:, None] & inside
    tl.store(target, turned_first.to(q_out.dtype.element_ty), mask=is_query)
    tl.store(target + half, turned_second.to(q_out.dtype.element_ty), mask=is_query)

    slot = tl.load(slots + row)
    key = head - Q_HEADS
    value = key - KV_HEADS
    is_key = ((key >= 0) & (value < 0) & (slot >= 0))[:, None] & inside
    is_value = ((value >= 0) & (value < KV_HEADS) & (slot >= 0))[:, None] & inside
    k_at = k_pages + key[:, None] * head_stride + slot * HEAD_DIM + dims[None, :]
    v_at = v_pages + value[:, None] * head_stride + slot * HEAD_DIM + dims[None, :]
    tl.store(k_at, turned_first.to(k_pages.dtype.element_ty), mask=is_key)
    tl.store(k_at + half, turned_second.to(k_pages.dtype.element_ty), mask=is_key)
    tl.store(v_at, first_raw.to(v_pages.dtype.element_ty), mask=is_value)
    tl.store(v_at + half, second_raw.to(v_pages.dtype.element_ty), mask=is_value)


@dataclass(frozen=True, slots=True)
class RotaryInputs:
    """One layer's projections and where they go.

    Raises:
        ValueError: shapes that do not belong together.
    """

    heads: Tensor
    """``[tokens, q_heads + 2 * kv_heads, head_dim]``: queries, keys, values; a row's heads in one piece."""
    cos: Tensor
    """``[positions, head_dim / 2]``, as ``sin``; any float type."""
    sin: Tensor
    positions: Tensor
    """int64 ``[tokens]``."""
    slots: Tensor
    """int64 ``[tokens]``, ``page * page_size + offset``; -1 writes no key and no value.  No slot may occur twice."""
    norm: Tensor | None = None
    """``[q_heads + kv_heads, head_dim]``: RMSNorm weights of every query and key head."""
    eps: float = 1e-6

    def __post_init__(self) -> None:
        dim = self.heads.shape[2]
        if dim % 2 or self.cos.shape != self.sin.shape or self.cos.shape[1] != dim // 2:
            raise ValueError(
                f"got heads {list(self.heads.shape)}, cosines {list(self.cos.shape)} and sines {list(self.sin.shape)}, "
                "expected tables half as wide as an even head"
            )
        if self.heads.stride()[1:] != (dim, 1) or not (self.cos.is_contiguous() and self.sin.is_contiguous()):
            raise ValueError(f"got heads with strides {self.heads.stride()}, expected a row's heads side by side")


def rotary_write(
    inputs: RotaryInputs, q_out: Tensor, k_pages: Tensor, v_pages: Tensor, arch: str | None = None
) -> Launch:
    """Fill ``q_out`` ``[tokens, q_heads, head_dim]``, contiguous, and the slots of ``k_pages`` and ``v_pages``
    ``[kv_heads, num_pages, page_size, head_dim]``, contiguous.  Half types are computed in float32 and rounded once."""
    tokens, count, head_dim = inputs.heads.shape
    q_heads, kv_heads = q_out.shape[1], k_pages.shape[0]
    if count != q_heads + 2 * kv_heads:
        raise ValueError(f"got {count} heads, expected {q_heads} of queries and 2 x {kv_heads} of keys and values")
    bits = 8 * inputs.heads.element_size()
    blocks = blocks_for("rotary_write", arch or architecture(q_out.device), bits, head_dim)
    arguments = {
        "q_out": q_out,
        "k_pages": k_pages,
        "v_pages": v_pages,
        "heads": inputs.heads,
        "cos": inputs.cos,
        "sin": inputs.sin,
        "norm": inputs.cos if inputs.norm is None else inputs.norm,
        "positions": inputs.positions,
        "slots": inputs.slots,
        "heads_stride": inputs.heads.stride(0),
        "head_stride": k_pages.stride(0),
        "eps": inputs.eps,
    }
    constants = {
        "Q_HEADS": q_heads,
        "KV_HEADS": kv_heads,
        "HEAD_DIM": head_dim,
        "HAS_NORM": inputs.norm is not None,
        "BLOCK_HEADS": blocks.rows,
        "BLOCK_HALF": power_of_two(head_dim // 2),
    }
    return Launch(rotary_write_kernel, (tokens, -(-count // blocks.rows)), arguments, constants, blocks)


def rotary_write_twin(inputs: RotaryInputs, q_out: Tensor, k_pages: Tensor, v_pages: Tensor) -> None:
    """The same in plain torch and float64."""
    q_heads, kv_heads = q_out.shape[1], k_pages.shape[0]
    turning = inputs.heads[:, : q_heads + kv_heads].double()
    if inputs.norm is not None:
        turning = turning * (turning.square().mean(-1, keepdim=True) + inputs.eps).rsqrt() * inputs.norm.double()
    cos, sin = inputs.cos[inputs.positions].double()[:, None], inputs.sin[inputs.positions].double()[:, None]
    first, second = turning.chunk(2, -1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    q_out.copy_(turned[:, :q_heads])
    values = inputs.heads[:, q_heads + kv_heads :]
    written = inputs.slots >= 0
    for rows, pages in ((turned[:, q_heads:], k_pages), (values, v_pages)):
        flat = pages.view(kv_heads, -1, pages.shape[3])
        flat[:, inputs.slots[written]] = rows[written].to(pages.dtype).transpose(0, 1)
