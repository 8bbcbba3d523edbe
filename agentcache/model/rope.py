"""Rotary position embedding (Su et al., "RoFormer", 2021) and the ways of stretching it that keep keys cacheable."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from agentcache.model.config import ModelConfig, RopeConfig


def rotary_frequencies(rope: RopeConfig, head_dim: int) -> tuple[Tensor, float]:
    """Angle per position of each pair of a head, float32 ``[head_dim / 2]``, and what cosines and sines are scaled by."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.rope_type == "linear":
        return frequencies / rope.factor, 1.0
    if rope.rope_type == "llama3":
        return _llama3(rope, frequencies), 1.0
    if rope.rope_type == "yarn":
        return _yarn(rope, frequencies, head_dim), _yarn_attention_factor(rope)
    return frequencies, 1.0


def _llama3(rope: RopeConfig, frequencies: Tensor) -> Tensor:
    """Llama 3.1: slow pairs are slowed by ``factor``, fast pairs stay, those between are blended.

    ::

        turns over the original length:   0 ... low_freq_factor ........ high_freq_factor ... many
        frequency:                        f / factor   | blend from / factor to f |   f
    """
    turns = rope.original_max_position * frequencies / (2 * math.pi)
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    return torch.lerp(frequencies / rope.factor, frequencies, blend.clamp(0, 1))


def _yarn(rope: RopeConfig, frequencies: Tensor, head_dim: int) -> Tensor:
    """YaRN: like llama3, but the blend runs over the index of the pair between two numbers of turns."""

    def pair_with(turns: float) -> float:
        ratio = rope.original_max_position / (turns * 2 * math.pi)
        return head_dim * math.log(ratio) / (2 * math.log(rope.theta))

    first, last = pair_with(rope.beta_fast), pair_with(rope.beta_slow)
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    if first == last:
        last += 0.001
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - first) / (last - first)).clamp(0, 1)
    return torch.lerp(frequencies, frequencies / rope.factor, ramp)


def _yarn_attention_factor(rope: RopeConfig) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor

    def temperature(weight: float) -> float:
        return 0.1 * weight * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0

    if rope.mscale and rope.mscale_all_dim:
        return temperature(rope.mscale) / temperature(rope.mscale_all_dim)
    return temperature(1.0)


class RotaryTable:
    """Cosines and sines of every position, computed once.

    Half a head wide: the two halves of a head turn by the same angles, so the full width is made per step, not stored.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        frequencies, scale = rotary_frequencies(config.rope, config.head_dim)
        angles = torch.arange(config.max_position_embeddings, dtype=torch.float32)[:, None] * frequencies
        self._cos = angles.cos().mul_(scale).to(device=device, dtype=dtype)
        self._sin = angles.sin().mul_(scale).to(device=device, dtype=dtype)

    @property
    def halves(self) -> tuple[Tensor, Tensor]:
        """Cosines and sines of all positions, ``[max_position_embeddings, head_dim / 2]`` each."""
        return self._cos, self._sin

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """For int64 ``[tokens]``: two tensors ``[tokens, 1, head_dim]`` for :func:`rotate`."""
        cos = self._cos.index_select(0, positions)
        sin = self._sin.index_select(0, positions)
        return torch.cat((cos, cos), -1).unsqueeze(1), torch.cat((-sin, sin), -1).unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Turn the pairs ``(i, i + head_dim / 2)`` of ``x`` ``[tokens, heads, head_dim]``; returns a new tensor.

    Two products and a sum instead of one fused call: each is rounded on its own, so a row's bits cannot depend on where
    in the batch it stands.
    """
    first, second = x.chunk(2, -1)
    turned = torch.cat((second, first), -1).mul_(signed_sin)
    return (x * cos).add_(turned)
