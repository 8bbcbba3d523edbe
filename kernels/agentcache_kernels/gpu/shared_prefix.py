# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""Attention of many sequences' single rows to splits that they have in common, which are read once for all of them.

Juravsky et al., "Hydragen: High-Throughput LLM Inference with Shared Prefixes", 2024; Ye et al., "Cascade Inference", 2024.
Shared work is cut where ``decode.py`` cuts its own, and leaves its results in the same places::

    sequence 0:   | split 0 | split 1 | split 2 | rest          item: (members 0 1 2, split 0)
    sequence 1:   | the same pages .. | split 2 | rest                (members 0 1,   split 1)
    sequence 2:   | the same| split 1 | rest

so a tree of prefixes is a list of items, and merging does not know who read what.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from agentcache_kernels.gpu.attend import attend_keys
from agentcache_kernels.gpu.decode import Parts
from agentcache_kernels.gpu.inputs import AttentionInputs, Sequences, SequenceSpec, gathered
from agentcache_kernels.gpu.launch import Launch, host_lists
from agentcache_kernels.gpu.tuning import architecture, blocks_for
from agentcache_kernels.gpu.upload import on_device


@host_lists("items", "members", "rows", "context_lens", "tables", numbers=("table_stride", "num_splits"))
def shared_prefix_kernel(
    parts,
    logs,
    q,
    k_pages,
    v_pages,
    items,
    members,
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
    item = tl.program_id(0)
    head = (tl.program_id(1) // CHUNKS).to(tl.int64)
    first = tl.load(items + 3 * item)
    count = tl.load(items + 3 * item + 1)
    split = tl.load(items + 3 * item + 2)
    table = tables + tl.load(members + first).to(tl.int64) * table_stride

    lines = tl.program_id(1) % CHUNKS * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    own = lines // GROUP < count
    sequences = tl.load(members + first + lines // GROUP, mask=own, other=0).to(tl.int64)
    q_heads = head * GROUP + lines % GROUP
    dims = tl.arange(0, BLOCK_DIM)
    real = own[:, None] & (dims < HEAD_DIM)[None, :]
    step_rows = tl.load(rows + sequences, mask=own, other=0).to(tl.int64)
    queries = tl.load(
        q + step_rows[:, None] * q_stride + q_heads[:, None] * HEAD_DIM + dims[None, :], mask=real, other=0.0
    )
    contexts = tl.load(context_lens + sequences, mask=own, other=0)
    first_seen = contexts * 0
    if HAS_WINDOW:
        first_seen = contexts - window

    # An item of nobody has no keys.  Ending the program early instead costs registers.
    stop = (split + tl.minimum(count, 1)) * SPLIT
    acc = tl.zeros([BLOCK_ROWS, BLOCK_DIM], tl.float32)
    top = tl.full([BLOCK_ROWS], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_ROWS], tl.float32)
    acc, top, total = attend_keys(
        acc, top, total, queries, k_pages + head * head_stride, v_pages + head * head_stride, table, split * SPLIT,
        stop, first_seen, contexts - 1, scale, HAS_WINDOW, HEAD_DIM, PAGE_SIZE, BLOCK_DIM, BLOCK_KEYS,
    )  # fmt: skip

    part = (sequences * (tl.num_programs(1) // CHUNKS) * GROUP + q_heads) * num_splits + split
    # A line whose window begins after the split has a total of 0; what it leaves here is not read.
    result = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(parts + part[:, None] * HEAD_DIM + dims[None, :], result, mask=real)
    tl.store(logs + part, top + tl.log2(total), mask=own)


@dataclass(frozen=True, slots=True)
class SharedItems:
    """Who reads which split together; int32."""

    items: Tensor
    """``[items, 3]``: first member, how many (0 is nobody: nothing is read), split."""
    members: Tensor
    """Indices of sequences, those of an item side by side."""
    first_splits: Tensor
    """``[sequences]``: the splits of each sequence that items read, from 0 on."""


class SharedSplits(NamedTuple):
    """What :class:`SharedItems` holds, as the host finds it."""

    items: list[tuple[int, int, int]]
    members: list[int]
    first_splits: list[int]

    @property
    def spared(self) -> int:
        """Splits that need not be read because another member of their item reads them."""
        return sum(count - 1 for _, count, _ in self.items)

    @classmethod
    def none(cls, sequences: int) -> "SharedSplits":
        """Everybody reads everything."""
        return cls([], [], [0] * sequences)

    def on(self, device: torch.device) -> SharedItems:
        """The same where kernels can read it."""
        return SharedItems(
            on_device(self.items, torch.int32, device).view(-1, 3),
            on_device(self.members, torch.int32, device),
            on_device(self.first_splits, torch.int32, device),
        )


def share_splits(specs: Sequence[SequenceSpec], page_size: int, split: int, most: int) -> SharedSplits:
    """Find the splits that at least two sequences have in common, at most ``most`` of them in one item.

    Splits that are not whole pages cannot be compared by pages and are not shared.
    """
    found = SharedSplits.none(len(specs))
    pages = split // page_size
    groups = [list(range(len(specs)))] if split % page_size == 0 else []
    depth = 0
    while groups:
        deeper: list[list[int]] = []
        for group in groups:
            parted: dict[tuple[int, ...], list[int]] = {}
            for index in group:
                if specs[index].context_len >= (depth + 1) * split:
                    parted.setdefault(tuple(specs[index].pages[depth * pages : (depth + 1) * pages]), []).append(index)
            deeper += [together for together in parted.values() if len(together) > 1]
        for together in deeper:
            starts = range(0, len(together), most)
            found.items.extend((len(found.members) + at, min(most, len(together) - at), depth) for at in starts)
            found.members.extend(together)
            for index in together:
                found.first_splits[index] = depth + 1
        groups, depth = deeper, depth + 1
    return found


def members_of_item(inputs: AttentionInputs, arch: str | None = None) -> int:
    """The most sequences that one item of :func:`shared_prefix_attention` holds."""
    blocks = blocks_for("shared_prefix", arch or architecture(inputs.q.device), inputs.bits, inputs.head_dim)
    return max(1, blocks.rows // inputs.group)


def shared_prefix_attention(
    inputs: AttentionInputs, sequences: Sequences, shared: SharedItems, parts: Parts, arch: str | None = None
) -> Launch:
    """Attention of each item's members to the item's split; ``parts.split`` is a multiple of the block of keys."""
    blocks = blocks_for("shared_prefix", arch or architecture(inputs.q.device), inputs.bits, inputs.head_dim)
    if parts.split % blocks.columns:
        raise ValueError(f"got splits of {parts.split} keys, expected a multiple of {blocks.columns}")
    arguments = {
        "parts": parts.results,
        "logs": parts.logs,
        "q": inputs.q,
        "k_pages": inputs.k_pages,
        "v_pages": inputs.v_pages,
        "items": shared.items,
        "members": shared.members,
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
    grid = (shared.items.shape[0], inputs.kv_heads * chunks)
    return Launch(shared_prefix_kernel, grid, arguments, constants, blocks)


def shared_prefix_twin(inputs: AttentionInputs, sequences: Sequences, shared: SharedItems, parts: Parts) -> None:
    """The same in plain torch and float64."""
    for first, count, split in shared.items.tolist():
        start, end = split * parts.split, (split + 1) * parts.split
        together = shared.members[first : first + count].tolist()
        keys = gathered(inputs.k_pages, sequences.tables[together[0]], end)[:, start:]
        values = gathered(inputs.v_pages, sequences.tables[together[0]], end)[:, start:]
        queries = inputs.q[sequences.rows[together].long()].double().unflatten(1, (inputs.kv_heads, inputs.group))
        scores = torch.einsum("shgd,hcd->shgc", queries, keys) * inputs.scale
        if inputs.window is not None:
            first_seen = sequences.context_lens[together] - inputs.window
            hidden = torch.arange(start, end, device=scores.device) < first_seen[:, None]
            scores = scores.masked_fill(hidden[:, None, None], -math.inf)
        result = torch.einsum("shgc,hcd->shgd", scores.softmax(-1), values)
        parts.results[together, :, split] = result.flatten(1, 2).float()
        parts.logs[together, :, split] = (scores.logsumexp(-1) / math.log(2)).flatten(1, 2).float()
