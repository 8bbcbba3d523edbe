"""From logits to tokens, for all sequences of a step in one call.

::

    logits --(penalties, bias)--> --(temperature)--> --(top_k, top_p, min_p)--> one draw
       \\-- log-probabilities that are reported: the model's own, before any of this

A draw is the inverse of the cumulative distribution at a uniform number that depends on (seed, position) only.  Rows are
worked on independently of each other, so company in the batch and preemption never change a token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from agentcache.errors import AgentCacheError
from agentcache.request import SamplingParams, Sequence, TokenLogprob

_CANDIDATES = 256
"""Filters look at this many best tokens first; few distributions need more, and a full sort costs 30 times as much."""


class NonFiniteLogitsError(AgentCacheError):
    """The model's logits for ``sequence`` are NaN or infinite: there is nothing to draw from."""

    def __init__(self, sequence: Sequence) -> None:
        super().__init__(
            f"request {sequence.request.request_id}, sequence {sequence.index}: got logits that are not finite at "
            f"position {len(sequence.tokens)}, expected numbers"
        )
        self.sequence = sequence


def sample(logits: Tensor, sequences: list[Sequence]) -> list[TokenLogprob]:
    """Draw the next token of each sequence.

    Args:
        logits: float32 ``[len(sequences), vocab]``; -inf bans a token.

    Returns:
        One entry a sequence.  ``logprob`` is NaN and ``top`` empty where ``params.logprobs`` is ``None``.

    Raises:
        NonFiniteLogitsError: a row holds NaN or +inf, or bans every token.
    """
    if not sequences:
        return []
    best, chosen = logits.max(-1)
    for row in (~best.isfinite()).nonzero().flatten().tolist():
        raise NonFiniteLogitsError(sequences[row])
    special = [i for i, sequence in enumerate(sequences) if not sequence.params.greedy or adjusts(sequence.params)]
    if special:
        rows = torch.tensor(special, device=logits.device)
        chosen[rows] = _draw(logits[rows].double(), [sequences[i] for i in special])
    return logprobs(logits, chosen, [sequence.params.logprobs for sequence in sequences])


def logprobs(logits: Tensor, tokens: Tensor, wanted: list[int | None]) -> list[TokenLogprob]:
    """Natural-log probability of ``tokens[i]`` under ``logits[i]``, with the ``wanted[i]`` best alternatives.

    Args:
        logits: float32 ``[rows, vocab]``.
        tokens: int64 ``[rows]``.
        wanted: how many alternatives, best first; ``None`` computes nothing for the row.
    """
    ids: list[int] = tokens.tolist()
    entries = [TokenLogprob(token, math.nan) for token in ids]
    asked = [i for i, count in enumerate(wanted) if count is not None]
    if not asked:
        return entries
    rows = torch.tensor(asked, device=logits.device)
    logs = logits[rows].log_softmax(-1)
    own = logs.gather(1, tokens[rows][:, None]).flatten().tolist()
    for i, logprob in zip(asked, own, strict=True):
        entries[i] = TokenLogprob(ids[i], logprob, ())
    # Among equals, which of them topk picks depends on how many are asked for: what a neighbour asks must not change it.
    for count in {wanted[i] for i in asked} - {0, None}:
        alike = [place for place, i in enumerate(asked) if wanted[i] == count]
        top = logs[torch.tensor(alike, device=logs.device)].topk(min(count or 0, logs.shape[1]))
        for place, values, indices in zip(alike, top.values.tolist(), top.indices.tolist(), strict=True):
            i = asked[place]
            entries[i] = TokenLogprob(ids[i], own[place], tuple(zip(indices, values, strict=True)))
    return entries


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on its arguments only (Philox 4x64: Salmon et al., SC 2011)."""
    return float(np.random.Generator(np.random.Philox(key=seed % 2**64, counter=position)).random())


def adjusts(params: SamplingParams) -> bool:
    """Whether :func:`adjust` changes anything."""
    return bool(
        params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0 or params.logit_bias
    )


def _draw(logits: Tensor, sequences: list[Sequence]) -> Tensor:
    """Tokens for rows that need more than the best logit.  float64, so that adding a bias reorders nothing."""
    adjust(logits, sequences)
    chosen = logits.argmax(-1)
    random = [i for i, sequence in enumerate(sequences) if not sequence.params.greedy]
    if not random:
        return chosen
    params = [sequences[i].params for i in random]
    rows = torch.tensor(random, device=logits.device)
    scaled = logits[rows] / _column([p.temperature for p in params], logits)
    draws = _column([uniform(sequences[i].seed, len(sequences[i].tokens)) for i in random], logits)
    filtered = torch.tensor([p.top_k > 0 or p.top_p < 1 or p.min_p > 0 for p in params], device=logits.device)
    drawn = torch.empty_like(rows)
    plain = (~filtered).nonzero().flatten()
    if len(plain):
        drawn[plain] = _invert(scaled[plain].softmax(-1), draws[plain])
    for width in (_CANDIDATES, logits.shape[1]):
        todo = filtered.nonzero().flatten()
        if len(todo) == 0:
            break
        tokens, done = _draw_filtered(scaled[todo], draws[todo], [params[i] for i in todo.tolist()], width)
        drawn[todo[done]] = tokens[done]
        filtered[todo[done]] = False
    chosen[rows] = drawn
    return chosen


def adjust(logits: Tensor, sequences: list[Sequence]) -> None:
    """Penalties, then biases, in place.  Repetition looks at prompt and output, the other two at the output only."""
    seen = _counts(
        logits, sequences, lambda s: s.tokens[0 : len(s.tokens)] if s.params.repetition_penalty != 1.0 else []
    )
    if seen is not None:
        repetition = _column([sequence.params.repetition_penalty for sequence in sequences], logits)
        penalised = torch.where(logits > 0, logits / repetition, logits * repetition)
        torch.where(seen > 0, penalised, logits, out=logits)
    generated = _counts(logits, sequences, _penalised_output)
    if generated is not None:
        logits -= generated * _column([sequence.params.frequency_penalty for sequence in sequences], logits)
        logits -= (generated > 0) * _column([sequence.params.presence_penalty for sequence in sequences], logits)
    rows = [i for i, sequence in enumerate(sequences) for _ in sequence.params.logit_bias]
    if rows:
        pairs = [pair for sequence in sequences for pair in sequence.params.logit_bias]
        tokens = torch.tensor([token for token, _ in pairs], device=logits.device)
        values = torch.tensor([bias for _, bias in pairs], dtype=logits.dtype, device=logits.device)
        logits.index_put_((torch.tensor(rows, device=logits.device), tokens), values, accumulate=True)


def _penalised_output(sequence: Sequence) -> list[int]:
    params = sequence.params
    if not params.presence_penalty and not params.frequency_penalty:
        return []
    return sequence.tokens[sequence.prompt_len : len(sequence.tokens)]


def _counts(logits: Tensor, sequences: list[Sequence], tokens_of: Callable[[Sequence], list[int]]) -> Tensor | None:
    """How often each row's tokens occur, ``[rows, vocab]``; ``None`` when no row has any."""
    lists = [tokens_of(sequence) for sequence in sequences]
    tokens = torch.tensor([token for ids in lists for token in ids], dtype=torch.int64, device=logits.device)
    if len(tokens) == 0:
        return None
    rows = torch.arange(len(lists)).repeat_interleave(torch.tensor([len(ids) for ids in lists])).to(logits.device)
    counts = torch.zeros_like(logits)
    return counts.index_put_((rows, tokens), torch.ones_like(tokens, dtype=logits.dtype), accumulate=True)


def _draw_filtered(scaled: Tensor, draws: Tensor, params: list[SamplingParams], width: int) -> tuple[Tensor, Tensor]:
    """Draws within top_k, then top_p of what is left, then min_p, looking at the ``width`` best tokens of each row.

    Returns:
        Tokens ``[rows]``, and for which rows ``width`` was wide enough.
    """
    vocab = scaled.shape[1]
    width = min(width, vocab)
    top = scaled.topk(width)
    probs = (top.values - scaled.logsumexp(-1, keepdim=True)).exp()
    limits = [p.top_k if 0 < p.top_k < vocab else vocab for p in params]
    ranks = torch.arange(width, device=scaled.device)
    kept = ranks < _column(limits, ranks)
    before = probs.cumsum(-1) - probs
    mass = torch.where(_column(limits, ranks) < vocab, (probs * kept).sum(-1, keepdim=True), 1.0)
    top_p = _column([p.top_p for p in params], scaled)
    kept &= (before < top_p * mass) | (top_p >= 1)
    kept &= probs >= _column([p.min_p for p in params], scaled) * probs[:, :1]
    kept[:, 0] = True
    # Wide enough: the filters ended inside, and the mass that top_p is measured against was seen whole.
    done = (~kept[:, -1]) & torch.tensor([k <= width or k == vocab for k in limits], device=scaled.device)
    done |= torch.tensor([k <= width for k in limits], device=scaled.device)
    return top.indices.gather(1, _invert(probs * kept, draws)[:, None]).flatten(), done


def _invert(weights: Tensor, draws: Tensor) -> Tensor:
    """Index at which the running sum of each row first exceeds ``draws`` (``[rows, 1]``, below 1) times its total."""
    sums = weights.cumsum(-1)
    total = sums[:, -1:]
    target = torch.minimum(draws * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(sums, target, right=True).flatten()


def _column(values: Iterable[float], like: Tensor) -> Tensor:
    return torch.tensor(list(values), dtype=like.dtype, device=like.device)[:, None]
