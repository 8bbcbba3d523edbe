"""From logits to tokens, for all sequences of a step in one call.

::

    logits --(penalties, bias)--(mask)--> --(temperature)--> --(top_k, top_p, min_p)--> one draw
       \\-- log-probabilities that are reported: the model's own, before any of this

A draw is the inverse of the cumulative distribution at a uniform number that depends on (seed, position) only.  Rows are
worked on independently of each other, so company in the batch and preemption never change a token.

Rows that need more than their best logit are worked on some at a time, in memory that is kept between steps
(``Scratch``): asking the system for a fresh 100 MB each time takes several times as long as the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Rows
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentcache.errors import AgentCacheError
from agentcache.model.uniform import uniforms
from agentcache.request import SamplingParams, Sequence, TokenLogprob

_CANDIDATES = 256
"""Filters look at this many best tokens first; few distributions need more, and a full sort costs 30 times as much."""
_RUN = 256
"""Probabilities are summed in runs of this many, and only the run that a draw falls into is looked at one by one."""
_AT_ONCE = 2**18
"""Logits that are worked on at once, in float64: what fits a processor's second-level cache."""


class NonFiniteLogitsError(AgentCacheError):
    """What the model makes of ``sequence`` is NaN or infinite: there is nothing to draw from.

    Args:
        within: positions among which it begins, where it is not known better than that.
    """

    def __init__(self, sequence: Sequence, within: range | None = None) -> None:
        where = f"at position {len(sequence.tokens)}"
        if within is not None:
            where = f"between positions {within.start} and {within.stop}"
        super().__init__(
            f"request {sequence.request.request_id}, sequence {sequence.index}: got logits that are not finite "
            f"{where}, expected numbers"
        )
        self.sequence = sequence


class Block(NamedTuple):
    """Rows that are worked on at once, in float64, with room for their probabilities.

    ::

        whole:  | logits: one column a token | -inf |     width: whole runs of ``_RUN``
        spare:  | .................................. |
    """

    logits: Tensor
    whole: Tensor
    spare: Tensor


class Scratch:
    """The memory of a ``Block``, kept from call to call."""

    def __init__(self) -> None:
        self._held: Tensor | None = None

    def block(self, rows: int, vocab: int, device: torch.device) -> Block:
        """Room for ``rows`` rows; logits and spare are undefined."""
        width = -(-vocab // _RUN) * _RUN
        held = self._held
        if held is None or held.shape[1] < rows or held.shape[2] != width or held.device != device:
            held = self._held = torch.empty(2, rows, width, dtype=torch.float64, device=device)
        whole, spare = held[0, :rows], held[1, :rows]
        whole[:, vocab:] = -math.inf
        return Block(whole[:, :vocab], whole, spare)


_Choice: TypeAlias = Callable[[Block, list[Sequence], Tensor], Tensor]
"""Chooses a token for each row of a block, which it may overwrite, by numbers ``[rows, 1]`` in [0, 1)."""


def sample(logits: Tensor, sequences: list[Sequence], scratch: Scratch | None = None) -> list[TokenLogprob]:
    """Draw the next token of each sequence.

    Args:
        logits: float32 ``[len(sequences), vocab]``; -inf bans a token.
        scratch: memory to work in; a caller that samples again keeps one.

    Returns:
        One entry a sequence.  ``logprob`` is NaN and ``top`` empty where ``params.logprobs`` is ``None``.

    Raises:
        NonFiniteLogitsError: a row holds NaN or +inf, or bans every token.
    """
    if not sequences:
        return []
    chosen = _argmax(logits)
    best = logits.gather(1, chosen[:, None]).flatten()
    for row in (~best.isfinite()).nonzero().flatten().tolist():
        raise NonFiniteLogitsError(sequences[row])
    if kinds := _kinds(sequences):
        _draw(logits, chosen, sequences, kinds, scratch or Scratch())
    return logprobs(logits, chosen, [sequence.params.logprobs for sequence in sequences])


def _kinds(sequences: list[Sequence]) -> dict[_Choice, list[int]]:
    """Rows that need more than their best logit, by the way in which their token is chosen."""
    kinds: dict[_Choice, list[int]] = {}
    for row, sequence in enumerate(sequences):
        params = sequence.params
        if not params.greedy:
            kinds.setdefault(_draw_filtered if _filters(params) else _draw_plain, []).append(row)
        elif adjusts(sequence):
            kinds.setdefault(_best_adjusted, []).append(row)
    return kinds


def _draw(
    logits: Tensor, chosen: Tensor, sequences: list[Sequence], kinds: dict[_Choice, list[int]], scratch: Scratch
) -> None:
    """Put the tokens of these rows into ``chosen``."""
    numbers = torch.from_numpy(uniforms([s.seed for s in sequences], [len(s.tokens) for s in sequences]))
    numbers = numbers.to(logits.device)
    for choose, rows in kinds.items():
        for part in _parts(rows, logits):
            at = torch.tensor(part, device=logits.device)
            block = scratch.block(len(part), logits.shape[1], logits.device)
            group = [sequences[row] for row in part]
            block.logits.copy_(_rows(logits, part))
            adjust(block.logits, group)
            chosen[at] = choose(block, group, numbers[at][:, None])


def logprobs(logits: Tensor, tokens: Tensor, wanted: list[int | None]) -> list[TokenLogprob]:
    """Natural-log probability of ``tokens[i]`` under ``logits[i]``, with the ``wanted[i]`` best alternatives.

    Args:
        logits: float32 ``[rows, vocab]``.
        tokens: int64 ``[rows]``.
        wanted: how many alternatives, best first; ``None`` computes nothing for the row.
    """
    ids: list[int] = tokens.tolist()
    entries = [TokenLogprob(token, math.nan) for token in ids]
    # Among equals, which of them topk picks depends on how many are asked for: what a neighbour asks must not change it.
    alike: dict[int, list[int]] = {}
    for row, count in enumerate(wanted):
        if count is not None:
            alike.setdefault(count, []).append(row)
    for count, rows in alike.items():
        for part in _parts(rows, logits):
            at = torch.tensor(part, device=logits.device)
            logs = _rows(logits, part).log_softmax(-1)
            own = logs.gather(1, tokens[at][:, None]).flatten().tolist()
            tops = _best(logs, count) if count else [()] * len(part)
            for row, logprob, top in zip(part, own, tops, strict=True):
                entries[row] = TokenLogprob(ids[row], logprob, top)
    return entries


def _best(logs: Tensor, count: int) -> list[tuple[tuple[int, float], ...]]:
    """The ``count`` best tokens of each row, best first."""
    top = logs.topk(min(count, logs.shape[1]))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [tuple(zip(indices, values, strict=True)) for indices, values in pairs]


def _parts(rows: list[int], logits: Tensor) -> Iterator[list[int]]:
    """As many at a time as are worked on at once; a GPU takes all."""
    count = max(1, _AT_ONCE // logits.shape[1]) if logits.device.type == "cpu" else len(rows)
    return (rows[at : at + count] for at in range(0, len(rows), count))


def _rows(logits: Tensor, rows: list[int]) -> Tensor:
    """These rows; no copy of them where they follow each other."""
    if rows[-1] - rows[0] == len(rows) - 1:  # in ascending order
        return logits[rows[0] : rows[-1] + 1]
    return logits[torch.tensor(rows, device=logits.device)]


def _argmax(logits: Tensor) -> Tensor:
    """The first best token of each row, int64 ``[rows]``; numpy's takes a fifth of the time of torch's on a CPU."""
    if logits.device.type != "cpu" or logits.dtype not in {torch.float32, torch.float64}:
        return logits.argmax(-1)
    return torch.from_numpy(logits.numpy().argmax(-1))


def adjusts(sequence: Sequence) -> bool:
    """Whether penalties, biases or a mask change the logits."""
    params = sequence.params
    return sequence.constraint is not None or bool(
        params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0 or params.logit_bias
    )


def _filters(params: SamplingParams) -> bool:
    return params.top_k > 0 or params.top_p < 1 or params.min_p > 0


def adjust(logits: Tensor, sequences: list[Sequence]) -> None:
    """Penalties, then biases, then masks, in place.  Repetition looks at prompt and output, the other two at the output only.

    A mask comes last, so that no bias brings back what it bans.

    Args:
        logits: float64 ``[len(sequences), vocab]``, so that adding a bias reorders nothing.
    """
    rows = [i for i, sequence in enumerate(sequences) if sequence.params.repetition_penalty != 1.0]
    if rows:
        at, penalty = _spread(
            rows, [sequences[i].params.repetition_penalty for i in rows], [_ids(sequences[i], 0) for i in rows], logits
        )
        old = logits[at]
        logits[at] = torch.where(old > 0, old / penalty, old * penalty)  # equal for every occurrence of a token
    rows = [i for i, s in enumerate(sequences) if s.params.frequency_penalty or s.params.presence_penalty]
    rows = [i for i in rows if sequences[i].output_len]
    if rows:
        counted = [np.unique(_ids(sequences[i], sequences[i].prompt_len), return_counts=True) for i in rows]
        tokens = [ids for ids, _ in counted]
        at, frequency = _spread(rows, [sequences[i].params.frequency_penalty for i in rows], tokens, logits)
        _, presence = _spread(rows, [sequences[i].params.presence_penalty for i in rows], tokens, logits)
        counts = torch.from_numpy(np.concatenate([count for _, count in counted])).to(logits)
        logits[at] = logits[at] - counts * frequency - presence
    biased = [i for i, sequence in enumerate(sequences) for _ in sequence.params.logit_bias]
    if biased:
        pairs = [pair for sequence in sequences for pair in sequence.params.logit_bias]
        ids = torch.tensor([token for token, _ in pairs], device=logits.device)
        values = torch.tensor([bias for _, bias in pairs], dtype=logits.dtype, device=logits.device)
        logits.index_put_((torch.tensor(biased, device=logits.device), ids), values, accumulate=True)
    _mask(logits, sequences)


def _mask(logits: Tensor, sequences: list[Sequence]) -> None:
    """Ban what constraints do not allow, in place."""
    constraints = [(i, s.constraint) for i, s in enumerate(sequences) if s.constraint is not None]
    if not constraints:
        return
    words = np.stack([constraint.mask() for _, constraint in constraints])
    if (missing := -(-logits.shape[1] // 32) - words.shape[1]) > 0:  # logits beyond what a mask speaks of
        words = np.pad(words, ((0, 0), (0, missing)))
    if logits.device.type == "cpu":
        banned = np.unpackbits(~words.view(np.uint8), axis=1, count=logits.shape[1], bitorder="little").view(np.bool_)
        for (row, _), bits in zip(constraints, banned, strict=True):
            np.copyto(logits[row].numpy(), -np.inf, where=bits)  # a sixth of the time of torch's way
        return
    rows = torch.tensor([row for row, _ in constraints], device=logits.device)
    logits[rows] = logits[rows].masked_fill(unfit_on(logits.device, words)[:, : logits.shape[1]], -math.inf)


def unfit_on(device: torch.device, words: NDArray[np.uint32]) -> Tensor:
    """Masks ``[rows, words]``, sent as they are and unpacked there: what they ban, bool ``[rows, 32 * words]``."""
    packed = torch.from_numpy(words.view(np.int32))
    packed = (packed.pin_memory() if device.type == "cuda" else packed).to(device, non_blocking=True)
    bit = torch.arange(32, dtype=torch.int32, device=device)
    return ((packed[..., None] >> bit) & 1).flatten(1) == 0


def _ids(sequence: Sequence, start: int) -> NDArray[np.uint32]:
    """The sequence's tokens from ``start`` on."""
    return np.frombuffer(sequence.tokens.ids(start, len(sequence.tokens)), dtype=np.uint32)


def _spread(
    rows: list[int], values: list[float], tokens: Rows[NDArray[Any]], like: Tensor
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Places ``(rows[i], t)`` for each t of ``tokens[i]``, and ``values[i]`` for each of them."""
    counts = [len(ids) for ids in tokens]
    ids = torch.from_numpy(np.concatenate(tokens).astype(np.int64)).to(like.device)
    at = torch.from_numpy(np.repeat(np.array(rows), counts)).to(like.device)
    return (at, ids), torch.from_numpy(np.repeat(np.array(values), counts)).to(like)


# -- ways to choose ------------------------------------------------------------------------------------------------


def _best_adjusted(block: Block, _sequences: list[Sequence], _numbers: Tensor) -> Tensor:
    return _argmax(block.logits)


def _draw_plain(block: Block, sequences: list[Sequence], numbers: Tensor) -> Tensor:
    """A draw from all tokens: first the run that it falls into, then the token in there."""
    _heat(block.logits, sequences)
    probs = torch.softmax(block.whole, -1, out=block.spare).unflatten(-1, (-1, _RUN))
    ends = probs.sum(-1).cumsum(-1)
    total = ends[:, -1:]
    target = _below(numbers * total, total)
    run = torch.searchsorted(ends, target, right=True)
    before = torch.where(run > 0, ends.gather(1, (run - 1).clamp(min=0)), 0.0)
    inside = probs.gather(1, run[..., None].expand(-1, -1, _RUN)).squeeze(1)
    return (run * _RUN).flatten() + _invert(inside, target - before)


def _draw_filtered(block: Block, sequences: list[Sequence], numbers: Tensor) -> Tensor:
    """A draw from what the filters leave; rows whose filters end beyond the best tokens look at all of them."""
    logits = block.logits
    _heat(logits, sequences)
    params = [sequence.params for sequence in sequences]
    tokens, done = _draw_among(logits, numbers, params, _CANDIDATES)
    todo = (~done).nonzero().flatten()
    if len(todo):
        wide = [params[i] for i in todo.tolist()]
        tokens[todo], _ = _draw_among(logits[todo], numbers[todo], wide, logits.shape[1])
    return tokens


def _heat(logits: Tensor, sequences: list[Sequence]) -> None:
    logits.div_(_column([sequence.params.temperature for sequence in sequences], logits))


def _draw_among(scaled: Tensor, draws: Tensor, params: list[SamplingParams], width: int) -> tuple[Tensor, Tensor]:
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
    weights = probs * kept
    return top.indices.gather(1, _invert(weights, draws * weights.cumsum(-1)[:, -1:])[:, None]).flatten(), done


def _invert(weights: Tensor, target: Tensor) -> Tensor:
    """Index at which the running sum of each row first exceeds ``target`` (``[rows, 1]``), or the last that has weight."""
    sums = weights.cumsum(-1)
    return torch.searchsorted(sums, _below(target, sums[:, -1:]), right=True).flatten()


def _below(target: Tensor, total: Tensor) -> Tensor:
    return torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))


def _column(values: Iterable[float], like: Tensor) -> Tensor:
    return torch.tensor(list(values), dtype=like.dtype, device=like.device)[:, None]
