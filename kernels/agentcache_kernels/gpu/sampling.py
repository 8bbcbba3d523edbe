# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""Drawing tokens within top_k, then top_p of what is left, then min_p; a draw is a function of (seed, position).

No row is sorted.  Logits are read as whole numbers in the same order (*keys*), and what a sort would be asked for is found by
narrowing down a key, two bits a pass: the largest key at and above which there are k tokens, or a given mass.  All three
filters keep a beginning of the sorted order, and the draw is its inverse cumulative distribution::

    sorted:    | best ............................ cut |  dropped ...          cut: key, and how many tokens of that key
    draw:             ^ where the running mass exceeds u * mass up to the cut

Equal logits count as sorted by token id.  A row without filters is inverted in order of token ids, in one pass.  Uniform
numbers come from Philox 4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with the seed as its
key and the position as its counter; 24 bits of the first word are used.
"""

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from agentcache_kernels.gpu.launch import Launch
from agentcache_kernels.gpu.tuning import architecture, blocks_for


@triton.jit
def _uniform(seed, position):
    """A number in [0, 1), of 24 bits."""
    m0 = tl.cast(0xD2E7470EE14C6C93, tl.uint64)
    m1 = tl.cast(0xCA5A826395121157, tl.uint64)
    k0 = seed.to(tl.uint64)
    k1 = tl.cast(0, tl.uint64)
    c0 = position.to(tl.uint64) + 1
    c1 = tl.cast(0, tl.uint64)
    c2 = tl.cast(0, tl.uint64)
    c3 = tl.cast(0, tl.uint64)
    for _ in tl.static_range(10):
        high0 = tl.umulhi(c0, m0)
        high1 = tl.umulhi(c2, m1)
        low0 = c0 * m0
        low1 = c2 * m1
        c0 = high1 ^ c1 ^ k0
        c1 = low1
        c2 = high0 ^ c3 ^ k1
        c3 = low0
        k0 = k0 + tl.cast(0x9E3779B97F4A7C15, tl.uint64)
        k1 = k1 + tl.cast(0xBB67AE8584CAA73B, tl.uint64)
    return (c0 >> 40).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def _key_of(logit):
    bits = logit.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) | -2147483648)).to(tl.uint32, bitcast=True)


@triton.jit
def _logit_of(key):
    bits = key.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ -2147483648, ~bits).to(tl.float32, bitcast=True)


@triton.jit
def _read(logits, start, vocab, BLOCK: tl.constexpr):
    """Token ids, logits and keys of a block; key 0, which no number has, stands for what is outside."""
    tokens = start + tl.arange(0, BLOCK)
    logit = tl.load(logits + tokens, mask=tokens < vocab, other=-float("inf"))
    return tokens, logit, tl.where(tokens < vocab, _key_of(logit), 0)


@triton.jit
def _boundary(logits, vocab, best, slope, target, COUNT: tl.constexpr, INCLUSIVE: tl.constexpr, BLOCK: tl.constexpr):
    """The largest key such that tokens of this key and above weigh more than ``target`` (no less, if ``INCLUSIVE``)."""
    found = tl.cast(0, tl.uint32)
    unit = tl.cast(1 << 30, tl.uint32)
    for _ in range(16):
        one = tl.zeros([BLOCK], tl.float32)
        two = tl.zeros([BLOCK], tl.float32)
        three = tl.zeros([BLOCK], tl.float32)
        for start in range(0, vocab, BLOCK):
            _tokens, logit, key = _read(logits, start, vocab, BLOCK)
            weight = tl.exp2((logit - best) * slope)
            if COUNT:
                weight = tl.full([BLOCK], 1.0, tl.float32)
            one += tl.where(key >= found + unit, weight, 0.0)
            two += tl.where(key >= found + unit * 2, weight, 0.0)
            three += tl.where(key >= found + unit * 3, weight, 0.0)
        if INCLUSIVE:
            steps = (tl.sum(one) >= target).to(tl.uint32)
            steps += (tl.sum(two) >= target).to(tl.uint32)
            steps += (tl.sum(three) >= target).to(tl.uint32)
        else:
            steps = (tl.sum(one) > target).to(tl.uint32)
            steps += (tl.sum(two) > target).to(tl.uint32)
            steps += (tl.sum(three) > target).to(tl.uint32)
        found += steps * unit
        unit = unit >> 2
    return found


@triton.jit
def _around(logits, vocab, best, slope, cut, BLOCK: tl.constexpr):
    """Mass and number of the tokens above ``cut``, and the number of those at it."""
    mass = tl.zeros([BLOCK], tl.float32)
    above = tl.zeros([BLOCK], tl.int32)
    equal = tl.zeros([BLOCK], tl.int32)
    for start in range(0, vocab, BLOCK):
        _tokens, logit, key = _read(logits, start, vocab, BLOCK)
        mass += tl.where(key > cut, tl.exp2((logit - best) * slope), 0.0)
        above += (key > cut).to(tl.int32)
        equal += (key == cut).to(tl.int32)
    return tl.sum(mass), tl.sum(above), tl.sum(equal)


@triton.jit
def _nth(logits, vocab, cut, n, BLOCK: tl.constexpr):
    """The id of token number ``n`` of those whose key is ``cut``."""
    chosen = tl.full([BLOCK], -1, tl.int32)
    before = tl.cast(0, tl.int32)
    for start in range(0, vocab, BLOCK):
        tokens, _logit, key = _read(logits, start, vocab, BLOCK)
        equal = (key == cut).to(tl.int32)
        number = before + tl.cumsum(equal, 0) - 1
        chosen = tl.where((equal == 1) & (number == n), tokens, chosen)
        before += tl.sum(equal)
    return tl.max(chosen)


@triton.jit
def _in_order(logits, vocab, best, slope, draw, BLOCK: tl.constexpr):
    """The first token at which the running mass exceeds ``draw`` times all of it."""
    mass = tl.cast(0.0, tl.float32)
    for start in range(0, vocab, BLOCK):
        _tokens, logit, _key = _read(logits, start, vocab, BLOCK)
        mass += tl.sum(tl.exp2((logit - best) * slope))
    before = tl.cast(0.0, tl.float32)
    chosen = tl.cast(2147483647, tl.int32)
    last = tl.cast(-1, tl.int32)
    for start in range(0, vocab, BLOCK):
        tokens, logit, _key = _read(logits, start, vocab, BLOCK)
        weight = tl.exp2((logit - best) * slope)
        # A token of no weight is never drawn, though rounding may put the border there.
        reached = (before + tl.cumsum(weight, 0) > draw * mass) & (weight > 0)
        chosen = tl.minimum(chosen, tl.min(tl.where(reached, tokens, 2147483647)))
        last = tl.maximum(last, tl.max(tl.where(weight > 0, tokens, -1)))
        before += tl.sum(weight)
    return tl.minimum(chosen, last)


@triton.jit
def _in_filters(logits, vocab, best, slope, draw, top_k, top_p, min_p, BLOCK: tl.constexpr):
    """A draw from what the filters leave, which is the ``kept`` first tokens of key ``cut`` and all above."""
    everything = tl.cast(2147483647, tl.int32)
    cut = tl.cast(1, tl.uint32)
    kept = everything
    mass, _above, _equal = _around(logits, vocab, best, slope, tl.cast(0, tl.uint32), BLOCK)
    if (top_k > 0) & (top_k < vocab):
        cut = _boundary(logits, vocab, best, slope, top_k.to(tl.float32), True, True, BLOCK)
        heavier, above, _equal = _around(logits, vocab, best, slope, cut, BLOCK)
        kept = top_k - above
        mass = heavier + kept * tl.exp2((_logit_of(cut) - best) * slope)
    if top_p < 1.0:
        target = tl.maximum(top_p * mass, 1e-30)
        place = _boundary(logits, vocab, best, slope, target, False, True, BLOCK)
        heavier, above, _equal = _around(logits, vocab, best, slope, place, BLOCK)
        own = tl.exp2((_logit_of(place) - best) * slope)
        count = tl.maximum(tl.minimum(tl.ceil((target - heavier) / own), 1e9).to(tl.int32), 1)
        if place >= cut:
            kept = tl.where(place == cut, tl.minimum(kept, count), count)
            cut = place
            mass = heavier + tl.minimum(kept, _equal) * own
    if min_p > 0.0:
        lowest = tl.full([BLOCK], 4294967295, tl.uint32)
        for start in range(0, vocab, BLOCK):
            _tokens, logit, key = _read(logits, start, vocab, BLOCK)
            passes = (tl.exp2((logit - best) * slope) >= min_p) | (logit == best)
            lowest = tl.minimum(lowest, tl.where(passes, key, 4294967295))
        place = tl.min(lowest)
        if place > cut:
            heavier, above, equal = _around(logits, vocab, best, slope, place, BLOCK)
            cut = place
            kept = everything
            mass = heavier + equal * tl.exp2((_logit_of(place) - best) * slope)
    below = (mass.to(tl.int32, bitcast=True) - 1).to(tl.float32, bitcast=True)
    target = tl.minimum(draw * mass, below)
    place = tl.maximum(_boundary(logits, vocab, best, slope, target, False, False, BLOCK), cut)
    heavier, above, equal = _around(logits, vocab, best, slope, place, BLOCK)
    number = tl.minimum((target - heavier) / tl.exp2((_logit_of(place) - best) * slope), 1e9).to(tl.int32)
    most = tl.where(place == cut, tl.minimum(kept, equal), equal) - 1
    return _nth(logits, vocab, place, tl.maximum(tl.minimum(number, most), 0), BLOCK)


@triton.jit
def sampling_kernel(
    tokens, logits, temperatures, top_ks, top_ps, min_ps, seeds, positions, stride, vocab, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    largest = tl.full([BLOCK], -float("inf"), tl.float32)
    bad = tl.zeros([BLOCK], tl.int32)
    for start in range(0, vocab, BLOCK):
        _tokens, logit, _key = _read(logits, start, vocab, BLOCK)
        largest = tl.maximum(largest, logit)
        # What is not below infinity: NaN and infinity itself.
        bad += (~(logit < float("inf"))).to(tl.int32)
    best = tl.max(largest)
    temperature = tl.load(temperatures + row)
    top_k = tl.load(top_ks + row)
    top_p = tl.load(top_ps + row)
    min_p = tl.load(min_ps + row)
    token = tl.cast(-1, tl.int32)
    if (tl.sum(bad) == 0) & (best > -float("inf")):
        if temperature == 0.0:
            token = _nth(logits, vocab, _key_of(best), 0, BLOCK)
        else:
            slope = 1.4426950408889634 / temperature
            draw = _uniform(tl.load(seeds + row), tl.load(positions + row))
            if ((top_k > 0) & (top_k < vocab)) | (top_p < 1.0) | (min_p > 0.0):
                token = _in_filters(logits, vocab, best, slope, draw, top_k, top_p, min_p, BLOCK)
            else:
                token = _in_order(logits, vocab, best, slope, draw, BLOCK)
    tl.store(tokens + row, token)


@dataclass(frozen=True, slots=True)
class Draws:
    """What is asked of each row, all ``[rows]``."""

    temperatures: Tensor
    """float32; 0 takes the best token, the one of the lowest id among equals."""
    top_ks: Tensor
    """int32; 0 is off."""
    top_ps: Tensor
    """float32; 1 is off."""
    min_ps: Tensor
    """float32; 0 is off."""
    seeds: Tensor
    """int64, taken as 64 bits."""
    positions: Tensor
    """int64."""


def sample_tokens(logits: Tensor, draws: Draws, tokens: Tensor, arch: str | None = None) -> Launch:
    """Draw one token a row of ``logits`` (float32 ``[rows, vocab]``, -inf bans a token) into ``tokens`` (int32 ``[rows]``).

    A row that holds NaN or +inf, or bans every token, gets -1.
    """
    rows, vocab = logits.shape
    if logits.dtype != torch.float32 or logits.stride(1) != 1:
        raise ValueError(
            f"got logits as {logits.dtype} with strides {logits.stride()}, expected float32 rows in one piece"
        )
    blocks = blocks_for("sampling", arch or architecture(logits.device), 32, vocab)
    arguments = {
        "tokens": tokens,
        "logits": logits,
        "temperatures": draws.temperatures,
        "top_ks": draws.top_ks,
        "top_ps": draws.top_ps,
        "min_ps": draws.min_ps,
        "seeds": draws.seeds,
        "positions": draws.positions,
        "stride": logits.stride(0),
        "vocab": vocab,
    }
    return Launch(sampling_kernel, (rows,), arguments, {"BLOCK": blocks.columns}, blocks)


def sample_twin(logits: Tensor, draws: Draws, tokens: Tensor) -> None:
    """The same in plain torch and float64, by sorting."""
    for row, own in enumerate(logits.double()):
        tokens[row] = -1
        if own.isnan().any() or not own.max().isfinite():
            continue
        order = own.argsort(descending=True, stable=True)
        temperature = float(draws.temperatures[row])
        if temperature == 0:
            tokens[row] = order[0]
            continue
        top_k, top_p, min_p = int(draws.top_ks[row]), float(draws.top_ps[row]), float(draws.min_ps[row])
        filtered = 0 < top_k < len(own) or top_p < 1 or min_p > 0
        if not filtered:
            order = torch.arange(len(own), device=own.device)
        weights = ((own[order] - own.max()) / temperature).exp()
        if filtered:
            kept = torch.arange(len(own), device=own.device) < (top_k if top_k > 0 else len(own))
            before = weights.cumsum(0) - weights
            kept &= (before < top_p * weights[kept].sum()) | (top_p >= 1)
            kept &= weights >= min_p
            kept[0] = True
            weights = weights * kept
        sums = weights.cumsum(0)
        word = np.random.Philox(key=int(draws.seeds[row]) % 2**64, counter=int(draws.positions[row])).random_raw()
        place = torch.searchsorted(sums, float(int(word) >> 40) / 2**24 * sums[-1], right=True)
        tokens[row] = order[min(int(place), int(weights.nonzero().max()))]
