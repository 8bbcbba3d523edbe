# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""Putting the results of a row's splits together by the logs of their sums of exponentials.

::

    splits of a line:   - - | r2 r3 r4 | r5 -  -        '-': outside the window or the context, not read
    weight of r_i = 2^(log_i - largest log)             result = sum(weight_i * r_i) / sum(weight_i)

Splits are taken ``BLOCK_SPLITS`` at a time from fixed places on, so the order of the sum follows from the context alone.
Rabe and Staats, "Self-attention does not need O(n^2) memory", 2021; Dao et al., "Flash-Decoding", 2023.
"""

import math

import torch
import triton.language as tl
from torch import Tensor

from agentcache_kernels.gpu.decode import Parts
from agentcache_kernels.gpu.inputs import Sequences
from agentcache_kernels.gpu.launch import Launch, host_lists, power_of_two
from agentcache_kernels.gpu.tuning import architecture, blocks_for


@host_lists("rows", "context_lens", numbers=("num_splits",))
def merge_kernel(
    out,
    parts,
    logs,
    rows,
    context_lens,
    num_splits,
    window,
    HEAD_DIM: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    context = tl.load(context_lens + sequence)
    end = (context + SPLIT - 1) // SPLIT
    first = 0
    if HAS_WINDOW:
        first = tl.maximum(context - window, 0) // SPLIT
    line = (sequence * tl.num_programs(1) + head) * num_splits
    dims = tl.arange(0, BLOCK_DIM)

    acc = tl.zeros([BLOCK_DIM], tl.float32)
    top = -float("inf")
    total = 0.0
    for block in range(first // BLOCK_SPLITS * BLOCK_SPLITS, end, BLOCK_SPLITS):
        splits = block + tl.arange(0, BLOCK_SPLITS)
        read = (splits >= first) & (splits < end)
        real = read[:, None] & (dims < HEAD_DIM)[None, :]
        log = tl.load(logs + line + splits, mask=read, other=-float("inf"))
        part = tl.load(parts + (line + splits)[:, None] * HEAD_DIM + dims[None, :], mask=real, other=0.0)
        new_top = tl.maximum(top, tl.max(log, 0))
        shrink = tl.exp2(top - new_top)
        weights = tl.exp2(log - new_top)
        acc = acc * shrink + tl.sum(weights[:, None] * part, 0)
        total = total * shrink + tl.sum(weights, 0)
        top = new_top

    row = tl.load(rows + sequence).to(tl.int64)
    result = acc / tl.where(total == 0.0, 1.0, total)
    at = (row * tl.num_programs(1) + head) * HEAD_DIM + dims
    tl.store(out + at, result.to(out.dtype.element_ty), mask=dims < HEAD_DIM)


def merge(parts: Parts, sequences: Sequences, window: int | None, out: Tensor, arch: str | None = None) -> Launch:
    """Each sequence's row of ``out`` ``[tokens, q_heads, head_dim]``, contiguous; 0 where the context is empty."""
    _, q_heads, num_splits, head_dim = parts.results.shape
    blocks = blocks_for("merge", arch or architecture(out.device), 32, head_dim)
    arguments = {
        "out": out,
        "parts": parts.results,
        "logs": parts.logs,
        "rows": sequences.rows,
        "context_lens": sequences.context_lens,
        "num_splits": num_splits,
        "window": window or 0,
    }
    constants = {
        "HEAD_DIM": head_dim,
        "HAS_WINDOW": window is not None,
        "SPLIT": parts.split,
        "BLOCK_DIM": power_of_two(head_dim),
        "BLOCK_SPLITS": blocks.rows,
    }
    return Launch(merge_kernel, (len(sequences), q_heads), arguments, constants, blocks)


def merge_twin(parts: Parts, sequences: Sequences, window: int | None, out: Tensor) -> None:
    """The same in plain torch and float64."""
    for index in range(len(sequences)):
        context = int(sequences.context_lens[index])
        first = 0 if window is None else max(0, context - window) // parts.split
        end = -(-context // parts.split)
        logs = parts.logs[index, :, first:end].double()
        weights = (logs * math.log(2)).softmax(1)
        result = torch.einsum("hs,hsd->hd", weights, parts.results[index, :, first:end].double())
        out[int(sequences.rows[index])] = result.to(out.dtype)
