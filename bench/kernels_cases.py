"""Launches of every kernel in the shapes of well-known models, on tensors without memory: what is compiled ahead of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from agentcache_kernels.gpu.attention import SPLIT
from agentcache_kernels.gpu.decode import Parts, decode_attention
from agentcache_kernels.gpu.inputs import AttentionInputs, Sequences
from agentcache_kernels.gpu.launch import Launch
from agentcache_kernels.gpu.merge import merge
from agentcache_kernels.gpu.page_copy import PagePool, page_copy
from agentcache_kernels.gpu.prefill import prefill_attention
from agentcache_kernels.gpu.rms_norm import rms_norm
from agentcache_kernels.gpu.rotary_write import RotaryInputs, rotary_write
from agentcache_kernels.gpu.sampling import Draws, sample_tokens
from agentcache_kernels.gpu.shared_prefix import SharedItems, shared_prefix_attention
from agentcache_kernels.gpu.silu_mul import silu_mul

_TOKENS, _SEQUENCES, _PAGES, _CONTEXT, _VOCAB = 2048, 64, 4096, 8192, 128256


@dataclass(frozen=True, slots=True)
class Shape:
    """Heads and pages of a model."""

    q_heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    page_size: int = 16
    window: int | None = None


class Case(NamedTuple):
    kernel: str
    variant: str
    launch: Launch


def _empty(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _whole(*shape: int) -> Tensor:
    return _empty(*shape, dtype=torch.int32)


def attention_cases(shape: Shape, arch: str) -> Iterator[Case]:
    """The kernels that see heads."""
    pages = _empty(shape.kv_heads, _PAGES, shape.page_size, shape.head_dim, dtype=shape.dtype)
    heads = _empty(_TOKENS, shape.q_heads + 2 * shape.kv_heads, shape.head_dim, dtype=shape.dtype)
    q = _empty(_TOKENS, shape.q_heads, shape.head_dim, dtype=shape.dtype)
    inputs = AttentionInputs(q, pages, pages, shape.head_dim**-0.5, shape.window)
    tables = _whole(_SEQUENCES, -(-_CONTEXT // shape.page_size))
    lens = _whole(_SEQUENCES)
    sequences = Sequences(lens, lens, lens, tables, 1, _CONTEXT)
    parts = Parts.room(inputs, sequences, SPLIT)
    shared = SharedItems(_whole(32, 3), lens, lens)
    name = f"{shape.q_heads}/{shape.kv_heads} x {shape.head_dim} {str(shape.dtype)[6:]}, pages of {shape.page_size}"
    if shape.window is not None:
        name += f", window {shape.window}"
    yield Case("prefill_attention", name, prefill_attention(inputs, sequences, _whole(64, 2), q, arch))
    exact = prefill_attention(inputs, sequences, _whole(64, 2), q, arch, fused=False)
    yield Case("prefill_attention", f"{name}, batch-invariant", exact)
    yield Case("decode_attention", name, decode_attention(inputs, sequences, lens, parts, arch))
    yield Case("shared_prefix", name, shared_prefix_attention(inputs, sequences, shared, parts, arch))
    yield Case("merge", name, merge(parts, sequences, shape.window, q, arch))
    table = _empty(_CONTEXT, shape.head_dim // 2, dtype=shape.dtype)
    places = _empty(_TOKENS, dtype=torch.int64)
    for norm in (None, _empty(shape.q_heads + shape.kv_heads, shape.head_dim, dtype=shape.dtype)):
        rotary = RotaryInputs(heads, table, table, places, places, norm)
        variant = name if norm is None else f"{name}, query-key norm"
        yield Case("rotary_write", variant, rotary_write(rotary, q, pages, pages, arch))


def row_cases(dtype: torch.dtype, arch: str) -> Iterator[Case]:
    """The kernels that see rows, pages or logits."""
    name = str(dtype)[6:]
    for width in (576, 4096, 8192, 16384):
        x = _empty(_TOKENS, width, dtype=dtype)
        yield Case("rms_norm", f"{width} {name}, residual", rms_norm(x, x[0], x, x, eps=1e-5, arch=arch))
    gate_up = _empty(_TOKENS, 2 * 14336, dtype=dtype)
    yield Case("silu_mul", f"14336 {name}", silu_mul(gate_up, gate_up[:, :14336], arch))
    pool = PagePool([_empty(8, _PAGES, 16, 128, dtype=dtype)], _empty(1, dtype=torch.int64))
    yield Case("page_copy", f"8 x 16 x 128 {name}", page_copy(pool, pool, [(0, 1, 16)], arch))


def sampling_case(arch: str) -> Case:
    numbers, whole, wide = (_empty(_SEQUENCES, dtype=t) for t in (torch.float32, torch.int32, torch.int64))
    draws = Draws(numbers, whole, numbers, numbers, wide, wide)
    logits = _empty(_SEQUENCES, _VOCAB, dtype=torch.float32)
    return Case("sampling", f"{_VOCAB} float32", sample_tokens(logits, draws, whole, arch))


LLAMA_8B = Shape(32, 8, 128, torch.bfloat16)
SHOWN = (Shape(9, 3, 64, torch.bfloat16), LLAMA_8B, Shape(16, 8, 256, torch.bfloat16), Shape(32, 8, 128, torch.float32))
"""The shapes of the table: SmolLM2-135M, Llama 3 8B, heads of 256, and float32."""


def cases(shapes: tuple[Shape, ...], dtypes: tuple[torch.dtype, ...], arch: str) -> Iterator[Case]:
    """Every kernel in every shape."""
    for shape in shapes:
        yield from attention_cases(shape, arch)
    for dtype in dtypes:
        yield from row_cases(dtype, arch)
    yield sampling_case(arch)
