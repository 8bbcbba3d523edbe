"""Runs steps on the Triton kernels: decode steps from graphs, all others kernel by kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from agentcache.cache.tokens import PagedTokens
from agentcache.model.gpu.decode import DecodeLimits, DecodeSteps, Outputs
from agentcache.model.gpu.forward import ROW_GRID, KernelForward
from agentcache.model.gpu.graphs import Recorder
from agentcache.model.gpu.pages import DevicePages
from agentcache.model.gpu.sampling import adjusted, draw, needs_adjusting, reported
from agentcache.model.kv_store import KVStore
from agentcache.model.runner import first_rows, prompt_logprobs
from agentcache.model.step_rows import step_rows
from agentcache.model.transformer import Transformer
from agentcache.request import Request, SamplingParams, TokenLogprob
from agentcache.request import Sequence as Sequence_
from agentcache.scheduler.plan import Chunk, StepPlan, StepResult
from agentcache_kernels.gpu import AttentionRules, SequenceSpec, StepAttention, on_device
from agentcache_kernels.gpu.attention import SPLIT

WORTH_A_LAUNCH = 8 * 2**20
"""Bytes of one layer's keys and values that shared reading must spare: a launch inside a graph takes two or three
microseconds, in which such a chip reads about as much.  Reckoned, not measured."""


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """How steps are run.

    Args:
        max_running, max_context: the largest decode step: sequences, and positions of one of them.
        batch_invariant: a row's bits depend on its sequence alone (docs/determinism.md).
        least_spared, split: see ``AttentionRules``.
        row_grid: rows of a matrix product in the batch-invariant mode.
    """

    max_running: int
    max_context: int
    batch_invariant: bool = False
    least_spared: int = WORTH_A_LAUNCH
    split: int = SPLIT
    row_grid: int = ROW_GRID


class KernelRunner:
    """The ``scheduler.plan.Runner`` of a GPU.

    The host waits for the device once a step, for the drawn ids; once more where log-probabilities are asked for.
    """

    def __init__(
        self, model: Transformer, kv: KVStore, pages: DevicePages, options: KernelOptions, recorder: Recorder
    ) -> None:
        self.kv = kv
        self.device = kv.k[0].device
        self.pages = pages
        self.options = options
        self._rules = AttentionRules(options.split, options.least_spared, options.batch_invariant)
        self._forward = KernelForward(model, kv, options.row_grid if options.batch_invariant else None)
        limits = DecodeLimits(options.max_running, options.max_context)
        self.decode = DecodeSteps(self._forward, self._rules, limits, recorder)

    def run(self, plan: StepPlan) -> StepResult:
        """Make the copies, run every chunk, sample.  Blocks until the sampled ids are on the host.

        Raises:
            NonFiniteLogitsError: naming the sequence that has nothing to draw from.
        """
        with torch.inference_mode():
            self.pages.copy(plan.copies)
            if plan.num_tokens == 0:
                return StepResult([[] for _ in plan.chunks], [None for _ in plan.chunks])
            if self.decode.serves(plan.chunks):
                return self._decode(plan.chunks)
            hidden = self._mixed(plan.chunks, self._rules)
            return StepResult(
                self._samples(plan.chunks, hidden), prompt_logprobs(plan.chunks, hidden, self._logits, self.device)
            )

    @property
    def standing_bytes(self) -> int:
        """See ``DecodeSteps``."""
        return self.decode.standing_bytes

    def warm_up(self, prompt_rows: int) -> None:
        """Compile the kernels and capture the decode steps of short contexts, so that no request waits for it.

        Nothing changes: pages are read as they lie there, and the results are dropped.
        """
        self.pages.warm_up()
        self.run_largest(prompt_rows)
        for batch in self.decode.batches:
            chunks = [_read_only(0, 1, [0]) for _ in range(batch)]
            with torch.inference_mode():
                self.decode.run(chunks)

    def run_largest(self, prompt_rows: int) -> None:
        """A step as large as any, through every kernel, which reads pages and writes none.

        ::

            rows:  | a prompt ......... | one row | one row | ... max_running      these share a split
        """
        size = self.kv.page_size
        prompt_rows = min(prompt_rows, self.kv.num_pages * size, self.options.max_context)
        context = min(self.options.split + 1, self.options.max_context)
        chunks = [_read_only(0, prompt_rows, list(range(-(-prompt_rows // size))))]
        chunks += [_read_only(context - 1, 1, [0] * -(-context // size)) for _ in range(self.options.max_running)]
        with torch.inference_mode():
            hidden = self._mixed(chunks, replace(self._rules, least_spared=0))
            logits = self._logits(hidden[: self.options.max_running])
            draw(logits, [chunk.sequence for chunk in chunks[: len(logits)]])

    def _decode(self, chunks: list[Chunk]) -> StepResult:
        outputs = self.decode.run(chunks)
        sequences = [chunk.samples[0] for chunk in chunks]
        if needs_adjusting(sequences):
            outputs = Outputs(outputs.logits, draw(adjusted(outputs.logits, sequences), sequences))
        drawn = self._report(outputs, sequences)
        # Rows behind a prompt say nothing of it.
        of_prompts: list[list[TokenLogprob] | None] = [
            None if chunk.sequence.params.prompt_logprobs is None else [] for chunk in chunks
        ]
        return StepResult([[entry] for entry in drawn], of_prompts)

    def _mixed(self, chunks: Sequence[Chunk], rules: AttentionRules) -> Tensor:
        """``[rows, hidden_size]``: the rows of all chunks, one after another."""
        rows = step_rows(chunks, self.kv.page_size)
        count = rows.shape[1]
        numbers = np.zeros((3, self._forward.padded(count)), np.int64)
        numbers[2] = -1  # what pads is written nowhere
        numbers[:, :count] = rows
        token_ids, places, targets = on_device(numbers, torch.int64, self.device).unbind()
        specs = [
            SequenceSpec(row, chunk.count, chunk.end, chunk.pages)
            for chunk, row in zip(chunks, first_rows(chunks), strict=True)
        ]
        attention = StepAttention.plan(self._forward.plan_inputs(numbers.shape[1]), specs, rules)
        return self._forward.hidden(token_ids, places, targets, attention)[:count]

    def _samples(self, chunks: list[Chunk], hidden: Tensor) -> list[list[TokenLogprob]]:
        rows = [
            row + chunk.count - 1
            for chunk, row in zip(chunks, first_rows(chunks), strict=True)
            for _ in chunk.samples  # sequences of one request draw from the same row
        ]
        if not rows:
            return [[] for _ in chunks]
        sequences = [sequence for chunk in chunks for sequence in chunk.samples]
        logits = self._logits(hidden.index_select(0, on_device(rows, torch.int64, self.device)))
        drawn = iter(self._report(Outputs(logits, draw(adjusted(logits, sequences), sequences)), sequences))
        return [[next(drawn) for _ in chunk.samples] for chunk in chunks]

    def _report(self, outputs: Outputs, sequences: list[Sequence_]) -> list[TokenLogprob]:
        return reported(outputs.logits, outputs.tokens, sequences)

    def _logits(self, hidden: Tensor) -> Tensor:
        rows = hidden.shape[0]
        padding = self._forward.padded(rows) - rows
        if padding:
            hidden = torch.nn.functional.pad(hidden, (0, 0, 0, padding))
        return self._forward.logits(hidden)[:rows]


def _read_only(start: int, rows: int, pages: list[int]) -> Chunk:
    """Rows of nobody that read ``pages`` and write nothing."""
    end = start + rows
    request = Request("warm-up", [0], SamplingParams(temperature=0.0), b"", lambda _: None)
    sequence = Sequence_(request, 0, PagedTokens([0] * end, 1, b""), prompt_len=end, max_tokens=1, seed=0)
    return Chunk(sequence, start, rows, write_from=end, pages=pages, samples=(sequence,))
