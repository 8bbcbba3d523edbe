# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""Attention of one row a sequence, its keys cut into splits that are worked on side by side.

Dao et al., "Flash-Decoding for long-context inference", 2023, with one difference: splits begin at fixed positions and are of
fixed length, whatever the batch, so a row's result depends on its own keys alone (batch invariance: He et al., "Defeating
nondeterminism in LLM inference", 2025)::

    keys of a sequence:   | split 0 ....... | split 1 ....... | split 2 .. |
    programs:               read by others    (result, lse)     (result, lse)         splits < first_splits are not ours

Each split leaves a result and the log of its sum of exponentials; ``merge.py`` puts them together.
"""

import math
from dataclasses import dataclass

import torch
import triton.language as tl
from torch import Tensor

from agentcache_kernels.gpu.attend import attend_keys
from agentcache_kernels.gpu.inputs import AttentionInputs, Sequences, gathered
from agentcache_kernels.gpu.launch import Launch, host_lists
from agentcache_kernels.gpu.tuning import architecture, blocks_for


@host_lists("first_splits", "rows", "context_lens", "tables", numbers=("table_stride", "num_splits"))
def decode_attention_kernel(
    parts,
    logs,
    q,
    k_pages,
    v_pages,
    first_splits,
    rows,
    context_lens,
    tables,
    table_stride,
    q_stride,
    head_stride,
    num_splits,
    scale,
    window,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
):
    split = tl.program_id(0)
    sequence = tl.program_id(1).to(tl.int64)
    head = (tl.program_id(2) // CHUNKS).to(tl.int64)
    context = tl.load(context_lens + sequence)
    first_seen = 0
    if HAS_WINDOW:
        first_seen = tl.maximum(context - window, 0)
    if split < tl.load(first_splits + sequence) or split * SPLIT >= context or (split + 1) * SPLIT <= first_seen:
        return

    lines = tl.program_id(2) % CHUNKS * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    q_heads = head * GROUP + lines
    dims = tl.arange(0, BLOCK_DIM)
    real = (lines < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
    row = tl.load(rows + sequence).to(tl.int64)
    queries = tl.load(q + row * q_stride + q_heads[:, None] * HEAD_DIM + dims[None, :], mask=real, other=0.0)

    acc = tl.zeros([BLOCK_ROWS, BLOCK_DIM], tl.float32)
    top = tl.full([BLOCK_ROWS], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_ROWS], tl.float32)
    acc, top, total = attend_keys(
        acc, top, total, queries, k_pages + head * head_stride, v_pages + head * head_stride,
        tables + sequence * table_stride, split * SPLIT, tl.minimum(split * SPLIT + SPLIT, context),
        lines * 0 + first_seen, lines * 0 + context - 1, scale, True, HEAD_DIM, PAGE_SIZE, BLOCK_DIM, BLOCK_KEYS,
    )  # fmt: skip

    part = (sequence * (tl.num_programs(2) // CHUNKS) * GROUP + q_heads) * num_splits + split
    tl.store(parts + part[:, None] * HEAD_DIM + dims[None, :], acc / total[:, None], mask=real)
    tl.store(logs + part, top + tl.log2(total), mask=lines < GROUP)


@dataclass(frozen=True, slots=True)
class Parts:
    """Where splits leave their results: float32, base-2 logs.  What no split wrote is undefined and never read."""

    results: Tensor
    """``[sequences, q_heads, splits, head_dim]``."""
    logs: Tensor
    """``[sequences, q_heads, splits]``."""
    split: int
    """Keys of a split."""

    @classmethod
    def room(cls, inputs: AttentionInputs, sequences: Sequences, split: int) -> "Parts":
        splits = -(-sequences.longest_context // split)
        results = inputs.q.new_empty((len(sequences), inputs.q_heads, splits, inputs.head_dim), dtype=torch.float32)
        return cls(results, results.new_empty(results.shape[:3]), split)


def decode_attention(
    inputs: AttentionInputs, sequences: Sequences, first_splits: Tensor, parts: Parts, arch: str | None = None
) -> Launch:
    """Attention of each sequence's single row to its splits from ``first_splits`` (int32 ``[sequences]``) on.

    ``parts.split`` is a multiple of the kernel's block of keys.
    """
    blocks = blocks_for("decode_attention", arch or architecture(inputs.q.device), inputs.bits, inputs.head_dim)
    if parts.split % blocks.columns:
        raise ValueError(f"got splits of {parts.split} keys, expected a multiple of {blocks.columns}")
    arguments = {
        "parts": parts.results,
        "logs": parts.logs,
        "q": inputs.q,
        "k_pages": inputs.k_pages,
        "v_pages": inputs.v_pages,
        "first_splits": first_splits,
        "rows": sequences.rows,
        "context_lens": sequences.context_lens,
        "tables": sequences.tables,
        "table_stride": sequences.tables.stride(0),
        "q_stride": inputs.q.stride(0),
        "head_stride": inputs.k_pages.stride(0),
        "num_splits": parts.logs.shape[2],
        "scale": inputs.scale * math.log2(math.e),
        "window": inputs.window or 0,
    }
    chunks = -(-inputs.group // blocks.rows)
    constants = inputs.constants() | {"SPLIT": parts.split, "CHUNKS": chunks}
    constants |= {"BLOCK_ROWS": blocks.rows, "BLOCK_KEYS": blocks.columns}
    grid = (parts.logs.shape[2], len(sequences), inputs.kv_heads * chunks)
    return Launch(decode_attention_kernel, grid, arguments, constants, blocks)


def decode_attention_twin(inputs: AttentionInputs, sequences: Sequences, first_splits: Tensor, parts: Parts) -> None:
    """The same in plain torch and float64."""
    for index in range(len(sequences)):
        context = int(sequences.context_lens[index])
        keys = gathered(inputs.k_pages, sequences.tables[index], context)
        values = gathered(inputs.v_pages, sequences.tables[index], context)
        query = inputs.q[int(sequences.rows[index])].double().unflatten(0, (inputs.kv_heads, inputs.group))
        first_seen = 0 if inputs.window is None else max(0, context - inputs.window)
        for split in range(int(first_splits[index]), -(-context // parts.split)):
            first, end = max(split * parts.split, first_seen), min((split + 1) * parts.split, context)
            if first >= end:
                continue
            scores = torch.einsum("hgd,hcd->hgc", query, keys[:, first:end]) * inputs.scale
            result = torch.einsum("hgc,hcd->hgd", scores.softmax(-1), values[:, first:end])
            parts.results[index, :, split] = result.flatten(0, 1).float()
            parts.logs[index, :, split] = (scores.logsumexp(-1) / math.log(2)).flatten().float()
