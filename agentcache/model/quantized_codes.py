"""Weights as small whole numbers with scales: what they stand for, and how they are made from floating point.

::

    int8:  one scale for each row (output channel)                 w = code * scale            code -127 .. 127
    int4:  a scale and a least weight for each 32 inputs of a row  w = code * scale + least    code    0 .. 15

Numbers of int4 groups are float16, as in the 4-bit types of GGUF, and are rounded *before* codes are chosen, so that this
costs no accuracy where codes are chosen here.  A code times its scale has so few bits that float32 holds it exactly: a weight
is rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 32
"""Inputs that share a scale in int4, as in the 4-bit types of GGUF."""


@dataclass(frozen=True, slots=True)
class ChannelCodes:
    """int8: ``codes`` int8 ``[outputs, inputs]``, ``scales`` float32 ``[outputs]``."""

    codes: Tensor
    scales: Tensor

    def dequantized(self) -> Tensor:
        """Float32 ``[outputs, inputs]``."""
        return self.codes * self.scales[:, None]


@dataclass(frozen=True, slots=True)
class GroupCodes:
    """int4: ``codes`` uint8 ``[outputs, inputs]`` of 0 .. 15, ``scales`` and ``leasts`` float16 ``[outputs, inputs / 32]``."""

    codes: Tensor
    scales: Tensor
    leasts: Tensor

    def dequantized(self) -> Tensor:
        """Float32 ``[outputs, inputs]``."""
        groups = self.codes.float().unflatten(1, (-1, GROUP))
        return groups.mul_(self.scales.float()[..., None]).add_(self.leasts.float()[..., None]).flatten(1)

    def to_bytes(self) -> Tensor:
        """``codes`` two to a byte, the one with the even index in the lower half: uint8 ``[outputs, inputs / 2]``."""
        return self.codes[:, 0::2] | self.codes[:, 1::2] << 4

    @classmethod
    def from_bytes(cls, packed: Tensor, scales: Tensor, leasts: Tensor) -> GroupCodes:
        """What :meth:`to_bytes` gave, with its scales and leasts."""
        return cls(torch.stack((packed & 15, packed >> 4), -1).flatten(1), scales, leasts)


def to_channel_codes(weight: Tensor) -> ChannelCodes:
    """The nearest int8 codes of float32 ``[outputs, inputs]``."""
    scales = weight.abs().amax(1) / 127
    # A row of zeros has no scale; any will do.
    divisors = scales.masked_fill(scales == 0, 1)[:, None]
    return ChannelCodes((weight / divisors).round_().clamp_(-127, 127).to(torch.int8), scales)


def to_group_codes(weight: Tensor) -> GroupCodes:
    """Int4 codes of float32 ``[outputs, inputs]``: 16 levels from the least to the greatest weight of each group."""
    groups = weight.unflatten(1, (-1, GROUP))
    least, greatest = groups.aminmax(dim=-1)
    scales, leasts = ((greatest - least) / 15).half(), least.half()
    divisors = scales.float().masked_fill_(scales == 0, 1)[..., None]
    codes = ((groups - leasts.float()[..., None]) / divisors).round_().clamp_(0, 15)
    return GroupCodes(codes.flatten(1).to(torch.uint8), scales, leasts)
