# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""Attention of rows that read keys and values through page tables, for sequences of any number of rows.

Tiling and online softmax: Dao, "FlashAttention-2", 2023.  Pages: Kwon et al., "Efficient Memory Management for Large
Language Model Serving with PagedAttention", SOSP 2023.  The query heads that share a head of keys are lines of one tile
(Ainslie et al., "GQA", 2023), so keys are loaded once for all of them, whatever their number::

    lines of a sequence:   row 0 head 0 | row 0 head 1 | .. | row 1 head 0 | ..       (heads of one group)
    tiles:                 | first .. first + BLOCK_ROWS | ...

A row's result depends on its query, its position and its keys alone, not on how a prompt was cut into calls.
"""

import math

import torch
import triton.language as tl
from torch import Tensor

from agentcache_kernels.gpu.attend import attend_keys
from agentcache_kernels.gpu.inputs import AttentionInputs, Sequences, SequenceSpec, gathered
from agentcache_kernels.gpu.launch import Launch, host_lists
from agentcache_kernels.gpu.tuning import Blocks, architecture, blocks_for
from agentcache_kernels.gpu.upload import on_device


@host_lists("tiles", "rows", "query_lens", "context_lens", "tables", numbers=("table_stride",))
def prefill_attention_kernel(
    out,
    q,
    k_pages,
    v_pages,
    tiles,
    rows,
    query_lens,
    context_lens,
    tables,
    table_stride,
    q_stride,
    head_stride,
    scale,
    window,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
):
    tile = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    sequence = tl.load(tiles + 2 * tile).to(tl.int64)
    first_line = tl.load(tiles + 2 * tile + 1)
    count = tl.load(query_lens + sequence)
    context = tl.load(context_lens + sequence)
    table = tables + sequence * table_stride

    lines = first_line + tl.arange(0, BLOCK_ROWS)
    own = lines // GROUP
    positions = context - count + own
    step_rows = tl.load(rows + sequence).to(tl.int64) + own
    q_heads = head * GROUP + lines % GROUP
    dims = tl.arange(0, BLOCK_DIM)
    real = (own < count)[:, None] & (dims < HEAD_DIM)[None, :]
    queries = tl.load(
        q + step_rows[:, None] * q_stride + q_heads[:, None] * HEAD_DIM + dims[None, :], mask=real, other=0.0
    )

    acc = tl.zeros([BLOCK_ROWS, BLOCK_DIM], tl.float32)
    top = tl.full([BLOCK_ROWS], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_ROWS], tl.float32)
    first_position = context - count + first_line // GROUP
    last_row = tl.minimum((first_line + BLOCK_ROWS - 1) // GROUP, count - 1)
    stop = tl.maximum(context - count + last_row + 1, 0)
    start = 0
    first_seen = positions * 0
    if HAS_WINDOW:
        first_seen = positions - window + 1
        start = tl.maximum(first_position - window + 1, 0) // BLOCK_KEYS * BLOCK_KEYS
    else:
        # Blocks that end at or before the tile's first position are seen by every line.
        start = tl.maximum(first_position + 1, 0) // BLOCK_KEYS * BLOCK_KEYS
        acc, top, total = attend_keys(
            acc, top, total, queries, k_pages + head * head_stride, v_pages + head * head_stride, table, 0, start,
            first_seen, positions, scale, False, HEAD_DIM, PAGE_SIZE, BLOCK_DIM, BLOCK_KEYS,
        )  # fmt: skip
    acc, top, total = attend_keys(
        acc, top, total, queries, k_pages + head * head_stride, v_pages + head * head_stride, table, start, stop,
        first_seen, positions, scale, True, HEAD_DIM, PAGE_SIZE, BLOCK_DIM, BLOCK_KEYS,
    )  # fmt: skip

    result = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    width = GROUP * tl.num_programs(1) * HEAD_DIM
    tl.store(
        out + step_rows[:, None] * width + q_heads[:, None] * HEAD_DIM + dims[None, :],
        result.to(out.dtype.element_ty),
        mask=real,
    )


def prefill_tiles(specs: list[SequenceSpec], group: int, blocks: Blocks, device: torch.device) -> Tensor:
    """int32 ``[tiles, 2]``: sequence and first line of every tile; those with most keys come first, so that none is left
    for the end."""
    tiles = [
        (spec.context_len - spec.query_len + line // group, index, line)
        for index, spec in enumerate(specs)
        for line in range(0, spec.query_len * group, blocks.rows)
    ]
    tiles.sort(reverse=True)
    return on_device([tile[1:] for tile in tiles], torch.int32, device).view(-1, 2)


def prefill_blocks(inputs: AttentionInputs, arch: str | None = None) -> Blocks:
    """The blocks that :func:`prefill_attention` uses, for :func:`prefill_tiles`."""
    return blocks_for("prefill_attention", arch or architecture(inputs.q.device), inputs.bits, inputs.head_dim)


def prefill_attention(
    inputs: AttentionInputs,
    sequences: Sequences,
    tiles: Tensor,
    out: Tensor,
    arch: str | None = None,
    *,
    fused: bool = True,
) -> Launch:
    """Attention of all rows of ``sequences`` into the same rows of ``out`` ``[tokens, q_heads, head_dim]``, contiguous.

    Rows that see no key become 0; rows of no sequence are left alone.

    Args:
        fused: products and sums may be rounded once together.  Without it a row has the same bits whether a block of keys
            was read with a mask or without one, which depends on how its prompt was cut.
    """
    blocks = prefill_blocks(inputs, arch)
    arguments = {
        "out": out,
        "q": inputs.q,
        "k_pages": inputs.k_pages,
        "v_pages": inputs.v_pages,
        "tiles": tiles,
        "rows": sequences.rows,
        "query_lens": sequences.query_lens,
        "context_lens": sequences.context_lens,
        "tables": sequences.tables,
        "table_stride": sequences.tables.stride(0),
        "q_stride": inputs.q.stride(0),
        "head_stride": inputs.k_pages.stride(0),
        "scale": inputs.scale * math.log2(math.e),
        "window": inputs.window or 0,
    }
    constants = inputs.constants() | {"BLOCK_ROWS": blocks.rows, "BLOCK_KEYS": blocks.columns}
    grid = (tiles.shape[0], inputs.kv_heads)
    return Launch(prefill_attention_kernel, grid, arguments, constants, blocks, fused)


def prefill_attention_twin(inputs: AttentionInputs, sequences: Sequences, out: Tensor) -> None:
    """The same in plain torch and float64."""
    for index in range(len(sequences)):
        row, count = int(sequences.rows[index]), int(sequences.query_lens[index])
        context = int(sequences.context_lens[index])
        keys = gathered(inputs.k_pages, sequences.tables[index], context)
        values = gathered(inputs.v_pages, sequences.tables[index], context)
        queries = inputs.q[row : row + count].double().unflatten(1, (inputs.kv_heads, inputs.group))
        positions = torch.arange(context - count, context, device=out.device)[:, None]
        places = torch.arange(context, device=out.device)
        seen = places <= positions
        if inputs.window is not None:
            seen &= places > positions - inputs.window
        scores = torch.einsum("thgd,hcd->hgtc", queries, keys) * inputs.scale
        weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
        weights = torch.where(seen.any(-1, keepdim=True), weights, 0.0)
        out[row : row + count] = torch.einsum("hgtc,hcd->thgd", weights, values).flatten(1, 2).to(out.dtype)
