"""Numbers that the host made, on their way to a device."""

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def on_device(values: Sequence[Any] | NDArray[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    """``values`` as a tensor there.

    They go through pinned memory, so the host does not wait for the device; torch keeps that memory until the copy is made.
    """
    return torch.tensor(values, dtype=dtype, pin_memory=device.type == "cuda").to(device, non_blocking=True)
