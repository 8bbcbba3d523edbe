"""The 4-bit types of GGUF as int4 codes with scales and least weights, without choosing codes anew.

After the layouts that the ggml project documents.  Each says a weight as ``w = d * code + m`` with one ``d`` and ``m`` for
32 inputs, as ours do::

    Q4_0   32 inputs in 18 bytes:    d | codes 0-15 in the lower halves, 16-31 in the upper        m = -8 d
    Q4_1   32 inputs in 20 bytes:    d | m | codes as above
    Q4_K   256 inputs in 144 bytes:  d | dmin | 8 scales and 8 minima of 6 bits | 8 groups of 32 codes, two groups to 32 bytes

Q4_0 and Q4_1 lose nothing: their weights have the very bits that the file means.  Q4_K multiplies its numbers up to more bits
than float16 has; rounding them moves each by at most 1/2048.
"""

from __future__ import annotations

from collections.abc import Callable

import gguf
import torch
from gguf import GGMLQuantizationType
from torch import Tensor

from agentcache.model.quantized_codes import GroupCodes


def group_codes(blocks: Tensor, kind: GGMLQuantizationType) -> GroupCodes | None:
    """The codes of a matrix, or ``None`` when its type has no 4-bit codes in groups of 32.

    Args:
        blocks: uint8 ``[outputs, bytes of a row]``, as they stand in the file.
    """
    if kind not in _UNPACK:
        return None
    size = gguf.GGML_QUANT_SIZES[kind][1]
    codes, d, m = _UNPACK[kind](blocks.unflatten(1, (-1, size)))
    scales, leasts = (part.reshape(blocks.shape[0], -1).half() for part in (d, m))
    return GroupCodes(codes.reshape(blocks.shape[0], -1), scales, leasts)


_Parts = tuple[Tensor, Tensor, Tensor]


def _q4_0(blocks: Tensor) -> _Parts:
    d = _halves(blocks[..., :2])
    return _lower_then_upper(blocks[..., 2:]), d, -8 * d


def _q4_1(blocks: Tensor) -> _Parts:
    return _lower_then_upper(blocks[..., 4:]), _halves(blocks[..., :2]), _halves(blocks[..., 2:4])


def _q4_k(blocks: Tensor) -> _Parts:
    d, d_min = _halves(blocks[..., :2]), _halves(blocks[..., 2:4])
    low, middle, high = blocks[..., 4:16].split(4, -1)
    # Groups 0-3 have their 6 bits in one byte; 4-7 have four in ``high`` and two on top of the bytes of 0-3.
    scales = torch.cat((low & 63, high & 15 | low >> 6 << 4), -1).float()
    minima = torch.cat((middle & 63, high >> 4 | middle >> 6 << 4), -1).float()
    codes = _lower_then_upper(blocks[..., 16:].unflatten(-1, (4, 32)))
    return codes, d * scales, -d_min * minima


_UNPACK: dict[GGMLQuantizationType, Callable[[Tensor], _Parts]] = {
    GGMLQuantizationType.Q4_0: _q4_0,
    GGMLQuantizationType.Q4_1: _q4_1,
    GGMLQuantizationType.Q4_K: _q4_k,
}


def _lower_then_upper(packed: Tensor) -> Tensor:
    return torch.cat((packed & 15, packed >> 4), -1)


def _halves(pair: Tensor) -> Tensor:
    """Two bytes as a float16, in float32 ``[..., 1]``."""
    return pair.contiguous().view(torch.float16).float()
