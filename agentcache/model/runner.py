"""Runs one step of the scheduler on the model: copies, one forward pass over all chunks, logits, sampling."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Rows
from itertools import islice

import torch
from torch import Tensor

from agentcache.model.kv_store import KVStore
from agentcache.model.sampler import NonFiniteLogitsError, Scratch, logprobs, sample
from agentcache.model.step_rows import step_rows
from agentcache.model.transformer import Transformer
from agentcache.request import Sequence, TokenLogprob
from agentcache.scheduler.plan import Chunk, StepPlan, StepResult
from agentcache_kernels import AttentionBatch, make_attention_batch

_LOGIT_ROWS = 128
"""Rows whose logits exist at once when log-probabilities of a prompt are asked for; 25 MB at 49,152 tokens."""


class ModelRunner:
    """The ``scheduler.plan.Runner`` that computes.

    ::

        chunks:     | chunk 0: rows start .. end | chunk 1 | chunk 2 ... |      one forward pass over all rows
        slots:        -1 -1 s s s s s s s s s s    s         s s s s s s        -1: below write_from, not written
        logits:                               ^    ^                   ^        only of rows that something is asked of
    """

    def __init__(self, model: Transformer, kv: KVStore, device: torch.device) -> None:
        self.model = model
        self.kv = kv
        self.device = device
        self._scratch = Scratch()

    def run(self, plan: StepPlan) -> StepResult:
        """Make the copies, run every chunk, sample.  Blocks until the sampled ids are on the host.

        Raises:
            NonFiniteLogitsError: naming the sequence that has nothing to draw from, or would have once its prompt is read:
                its pages must not be published, since not only what follows the fault is without numbers in them.
        """
        with torch.inference_mode():
            self.kv.copy(plan.copies)
            if plan.num_tokens == 0:
                return StepResult([[] for _ in plan.chunks], [None for _ in plan.chunks])
            hidden = self._forward(plan.chunks)
            _check_finite(plan.chunks, hidden)
            return StepResult(
                self._samples(plan.chunks, hidden),
                prompt_logprobs(plan.chunks, hidden, self.model.logits, self.device),
            )

    def warm_up(self) -> None:
        """Run a small prompt and a decode row, so that the first request does not pay for what runs only once.

        Nothing is written: page 0 is read as it lies there, and the results are dropped.
        """
        for rows in (min(16, self.kv.page_size), 1):
            zeros = torch.zeros(rows, dtype=torch.int64, device=self.device)
            batch = make_attention_batch([rows], [rows], [[0]], self.kv.page_size, self.device)
            with torch.inference_mode():
                hidden = self.model(zeros, zeros, zeros - 1, self.kv, batch)
                self.model.logits(hidden[-1:])

    def _forward(self, chunks: list[Chunk]) -> Tensor:
        rows = torch.tensor(step_rows(chunks, self.kv.page_size), device=self.device)
        token_ids, places, targets = rows.unbind()
        hidden: Tensor = self.model(token_ids, places, targets, self.kv, self._attention(chunks))
        return hidden

    def _attention(self, chunks: list[Chunk]) -> AttentionBatch:
        return make_attention_batch(
            [chunk.count for chunk in chunks],
            [chunk.end for chunk in chunks],
            [chunk.pages for chunk in chunks],
            self.kv.page_size,
            self.device,
        )

    def _samples(self, chunks: list[Chunk], hidden: Tensor) -> list[list[TokenLogprob]]:
        last_rows: list[int] = []
        row_of: list[int] = []
        sequences: list[Sequence] = []
        for chunk, row in zip(chunks, first_rows(chunks), strict=True):
            if chunk.samples:
                row_of += [len(last_rows)] * len(chunk.samples)
                last_rows.append(row + chunk.count - 1)
                sequences += chunk.samples
        if not last_rows:
            return [[] for _ in chunks]
        logits = self.model.logits(hidden[torch.tensor(last_rows, device=self.device)])
        if len(row_of) > len(last_rows):  # sequences of one request draw from the same row
            logits = logits[torch.tensor(row_of, device=self.device)]
        drawn = iter(sample(logits, sequences, self._scratch))
        return [list(islice(drawn, len(chunk.samples))) for chunk in chunks]


def prompt_logprobs(
    chunks: list[Chunk], hidden: Tensor, logits_of: Callable[[Tensor], Tensor], device: torch.device
) -> list[list[TokenLogprob] | None]:
    """What each chunk's rows say of the prompt tokens after them, where it was asked for.

    Args:
        hidden: ``[rows, hidden_size]``, the rows of all chunks.
        logits_of: float32 logits of some of these rows.
    """
    entries: list[list[TokenLogprob] | None] = []
    for chunk, row in zip(chunks, first_rows(chunks), strict=True):
        wanted = chunk.sequence.params.prompt_logprobs
        if wanted is None:
            entries.append(None)
            continue
        # The row at position p says how likely prompt token p + 1 was.
        following = chunk.sequence.tokens[chunk.start + 1 : min(chunk.end + 1, chunk.sequence.prompt_len)]
        found: list[TokenLogprob] = []
        for at in range(0, len(following), _LOGIT_ROWS):
            targets = torch.tensor(following[at : at + _LOGIT_ROWS], device=device)
            logits = logits_of(hidden[row + at : row + at + len(targets)])
            found += logprobs(logits, targets, [wanted] * len(targets))
        entries.append(found)
    return entries


def first_rows(chunks: Rows[Chunk]) -> list[int]:
    """Row of the step at which each chunk begins."""
    rows, row = [], 0
    for chunk in chunks:
        rows.append(row)
        row += chunk.count
    return rows


def _check_finite(chunks: list[Chunk], hidden: Tensor) -> None:
    """Rows that are drawn from are left to the sampler, which looks at their logits.

    A key that is no number spoils earlier rows of its tile as well (0 times NaN is NaN), so where it stands is not known.
    """
    finite = hidden.isfinite().all(-1)
    if bool(finite.all()):
        return
    for chunk, row in zip(chunks, first_rows(chunks), strict=True):
        rows = finite[row : row + chunk.count]
        if not bool((rows[:-1] if chunk.samples else rows).all()):
            raise NonFiniteLogitsError(chunk.sequence, range(chunk.start, chunk.end))
