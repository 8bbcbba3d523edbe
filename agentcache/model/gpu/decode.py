"""Steps in which every sequence has one row: buffers at fixed addresses, filled by the host, read by a graph.

::

    batch of the graph:   | row 0 | row 1 | ... | row n-1 | padding ... |
    slots:                  page*size+offset                -1            padding writes nowhere
    context_lens:           position + 1                     0            and attends to nothing
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentcache.model.gpu.forward import KernelForward
from agentcache.model.gpu.graphs import DecodeShape, Recorder, at_least, batch_sizes, split_counts
from agentcache.model.gpu.packed import Field, Packed
from agentcache.model.gpu.sampling import COLUMNS, DrawRow
from agentcache.model.step_rows import step_rows
from agentcache.scheduler.plan import Chunk
from agentcache_kernels.gpu import AttentionRules, Draws, Sequences, SequenceSpec, StepAttention, sample_tokens
from agentcache_kernels.gpu.prefill import prefill_blocks, prefill_tiles
from agentcache_kernels.gpu.shared_prefix import SharedItems, SharedSplits

_TABLE_ALIGNMENT = 16


class TableRows:
    """Page tables on the host, one a row, of which only what is new is written.

    ::

        pages of a row:   | settled: full when last seen, never replaced | open page | later ones
                            kept as they are                               written again
    """

    def __init__(self, table: NDArray[np.generic]) -> None:
        self._table = table
        self._owners: list[list[int] | None] = [None] * len(table)
        self._settled = [0] * len(table)

    def put(self, row: int, pages: list[int], settled: int, needed: int) -> None:
        """``pages[:needed]`` in ``row``; those before ``settled`` will not change as long as the list is the same one."""
        known = min(self._settled[row], settled) if self._owners[row] is pages else 0
        self._table[row, known:needed] = pages[known:needed]
        self._owners[row] = pages
        self._settled[row] = settled


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where every graph leaves its results."""

    logits: Tensor
    """Float32 ``[batch, vocab_size]``."""
    tokens: Tensor
    """int32 ``[batch]``; -1 where there is nothing to draw from."""

    def of(self, batch: int) -> Outputs:
        """Those of the first rows."""
        return Outputs(self.logits[:batch], self.tokens[:batch])


class DecodeStep:
    """The buffers of one shape, and what runs on them."""

    def __init__(self, shape: DecodeShape, forward: KernelForward, rules: AttentionRules, outputs: Outputs) -> None:
        device = outputs.tokens.device
        self._forward = forward
        self._outputs = outputs
        self._packed = Packed(_fields(shape, forward, rules.split), device)
        self._tables = TableRows(self._packed.host["tables"])
        own = self._packed.device
        self._draws = Draws(*(own[f"draw_{name}"] for name in COLUMNS))
        self._attention = _attention(shape, forward, rules, own)

    def fill(self, chunks: Sequence[Chunk], shared: SharedSplits) -> None:
        """Write a step of at most ``batch`` chunks of one row and send it to the device."""
        host, n, size = self._packed.host, len(chunks), self._forward.kv.page_size
        for name, unused in _UNUSED.items():
            host[name][n:] = unused
        host["token_ids"][:n], host["positions"][:n], host["slots"][:n] = step_rows(chunks, size)
        host["context_lens"][:n] = [chunk.end for chunk in chunks]
        host["query_lens"][:n] = 1
        for row, chunk in enumerate(chunks):
            self._tables.put(row, chunk.pages, chunk.start // size, -(-chunk.end // size))
        host["first_splits"][:n] = shared.first_splits
        items = host["items"]
        items[: len(shared.items)] = np.array(shared.items, dtype=np.int32).reshape(-1, 3)
        items[len(shared.items) :] = 0
        host["members"][: len(shared.members)] = shared.members
        rows = [DrawRow.of(chunk.samples[0]) for chunk in chunks]
        for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True):
            host[f"draw_{name}"][:n] = values
        self._packed.upload()

    def body(self) -> None:
        """The forward pass and the draws; reads and writes fixed memory only, and never waits for the device."""
        own = self._packed.device
        hidden = self._forward.hidden(own["token_ids"], own["positions"], own["slots"], self._attention)
        self._outputs.logits.copy_(self._forward.logits(hidden)[: len(self._outputs.logits)])
        sample_tokens(self._outputs.logits, self._draws, self._outputs.tokens).run()


_UNUSED = {
    "token_ids": 0,
    "positions": 0,
    "slots": -1,
    "context_lens": 0,
    "query_lens": 0,
    "first_splits": 0,
    "draw_temperatures": 0,
}
"""What rows hold that belong to nobody; what is not named here is not read then."""


def _fields(shape: DecodeShape, forward: KernelForward, split: int) -> list[Field]:
    rows, entries = forward.padded(shape.batch), shape.batch * shape.splits if shape.shared else 0
    width = -(-shape.splits * split // forward.kv.page_size)
    width = -(-width // _TABLE_ALIGNMENT) * _TABLE_ALIGNMENT
    return [
        *(Field(name, (rows,), torch.int64) for name in ("token_ids", "positions", "slots")),
        *(Field(f"draw_{name}", (shape.batch,), dtype) for name, dtype in COLUMNS.items()),
        *(Field(name, (shape.batch,), torch.int32) for name in ("context_lens", "query_lens", "first_splits")),
        Field("items", (entries, 3), torch.int32),
        Field("members", (entries,), torch.int32),
        Field("tables", (shape.batch, width), torch.int32),
    ]


def _attention(
    shape: DecodeShape, forward: KernelForward, rules: AttentionRules, own: dict[str, Tensor]
) -> StepAttention:
    """Attention whose tensors are the step's own buffers."""
    device = own["tables"].device
    rows = torch.arange(shape.batch, dtype=torch.int32, device=device)
    every = Sequences(
        rows, own["query_lens"], own["context_lens"], own["tables"], 1, max(1, shape.splits * rules.split)
    )
    nobody = Sequences(rows[:0], rows[:0], rows[:0], own["tables"][:0], 0, 0)
    shared = SharedItems(own["items"], own["members"], own["first_splits"])
    if rules.one_kernel:
        inputs = forward.plan_inputs(0)
        # Tiles depend on how many rows each sequence has, which is always one.
        specs = [SequenceSpec(row, 1, 1, ()) for row in range(shape.batch)]
        tiles = prefill_tiles(specs, inputs.group, prefill_blocks(inputs), device)
        return StepAttention(every, tiles, nobody, shared, rules)
    return StepAttention(nobody, own["items"].new_empty((0, 2)), every, shared, rules)


class DecodeLimits(NamedTuple):
    """The largest step there can be."""

    sequences: int
    context: int


class DecodeSteps:
    """Decode steps of every shape, each captured when it is first needed.

    Args:
        rules: which splits are read together, among others.
    """

    def __init__(self, forward: KernelForward, rules: AttentionRules, limits: DecodeLimits, recorder: Recorder) -> None:
        self._forward = forward
        self._rules = rules
        self._recorder = recorder
        self._batches = batch_sizes(limits.sequences)
        self._splits = split_counts(-(-limits.context // rules.split))
        vocab, device = forward.model.config.vocab_size, forward.kv.k[0].device
        self._outputs = Outputs(
            torch.zeros((self._batches[-1], vocab), dtype=torch.float32, device=device),
            torch.zeros(self._batches[-1], dtype=torch.int32, device=device),
        )
        self._steps: dict[DecodeShape, tuple[DecodeStep, Callable[[], None]]] = {}
        self._sharing = _Sharing(forward, rules)

    @property
    def standing_bytes(self) -> int:
        """Memory that stays taken: results, and the partial results of the longest contexts inside a graph."""
        config = self._forward.model.config
        parts = self._batches[-1] * config.num_heads * self._splits[-1] * (config.head_dim + 1) * 4
        return int(self._outputs.logits.nbytes) + (0 if self._rules.one_kernel else parts)

    @property
    def shapes(self) -> list[DecodeShape]:
        """What was captured so far."""
        return list(self._steps)

    @property
    def batches(self) -> list[int]:
        """The sizes for which graphs are captured."""
        return self._batches

    def serves(self, chunks: Sequence[Chunk]) -> bool:
        """Whether every chunk is one row that draws one token, and nothing is asked of prompts."""
        return 0 < len(chunks) <= self._batches[-1] and all(
            chunk.count == 1
            and len(chunk.samples) == 1
            and (chunk.sequence.params.prompt_logprobs is None or chunk.end >= chunk.sequence.prompt_len)
            for chunk in chunks
        )

    def run(self, chunks: Sequence[Chunk]) -> Outputs:
        """Queue the step; what it leaves is overwritten by the next one."""
        batch = at_least(self._batches, len(chunks))
        splits = at_least(self._splits, -(-max(chunk.end for chunk in chunks) // self._rules.split))
        if batch is None or splits is None:
            raise ValueError(f"got {len(chunks)} rows and contexts up to {max(c.end for c in chunks)}, expected fewer")
        shared = self._sharing.of(chunks)
        shape = DecodeShape(batch, splits, bool(shared.items))
        if shape in self._steps:
            step, replay = self._steps[shape]
            step.fill(chunks, shared)
            replay()
        else:
            step = DecodeStep(shape, self._forward, self._rules, self._outputs.of(batch))
            step.fill(chunks, shared)
            self._steps[shape] = step, self._recorder.record(step.body)
        return self._outputs.of(len(chunks))


class _Sharing:
    """Which splits a step's rows have in common.

    Looked for anew only when other sequences are in the step, or one of them has filled a split.
    """

    def __init__(self, forward: KernelForward, rules: AttentionRules) -> None:
        self._inputs = forward.plan_inputs(0)
        self._rules = rules
        self._pages: list[list[int]] = []
        self._full: list[int] = []
        self._found = SharedSplits.none(0)

    def of(self, chunks: Sequence[Chunk]) -> SharedSplits:
        pages = [chunk.pages for chunk in chunks]
        full = [chunk.end // self._rules.split for chunk in chunks]
        same = len(pages) == len(self._pages) and all(a is b for a, b in zip(pages, self._pages, strict=True))
        if not same or full != self._full:
            specs = [SequenceSpec(row, 1, chunk.end, chunk.pages) for row, chunk in enumerate(chunks)]
            self._found = self._rules.shared(self._inputs, specs)
            self._pages, self._full = pages, full
        return self._found
