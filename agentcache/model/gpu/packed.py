"""Many small arrays that go to the device in one transfer, and stay at the same address there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALIGNMENT = 16


class Field(NamedTuple):
    """One array of a :class:`Packed`."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


class Packed:
    """::

        host:    | field | field .... | field |     pinned; written through numpy
                     one asynchronous copy
        device:  | field | field .... | field |     read by kernels; never moves, so graphs may keep its address

    Whoever fills ``host`` again must know that the copy before has ended; a step does, since it waits for its tokens.
    """

    def __init__(self, fields: Sequence[Field], device: torch.device) -> None:
        offsets, size = [], 0
        for field in fields:
            offsets.append(size)
            size += -(-math.prod(field.shape) * int(field.dtype.itemsize) // _ALIGNMENT) * _ALIGNMENT
        self._host = torch.zeros(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._device = torch.zeros(size, dtype=torch.uint8, device=device)
        self.host: dict[str, NDArray[np.generic]] = {}
        self.device: dict[str, Tensor] = {}
        for field, offset in zip(fields, offsets, strict=True):
            end = offset + math.prod(field.shape) * int(field.dtype.itemsize)
            self.host[field.name] = self._host[offset:end].view(field.dtype).view(field.shape).numpy()
            self.device[field.name] = self._device[offset:end].view(field.dtype).view(field.shape)

    def upload(self) -> None:
        """Queue the copy on the current stream."""
        self._device.copy_(self._host, non_blocking=True)
