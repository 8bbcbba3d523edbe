"""Where compiled kernels can be used."""

from __future__ import annotations

import platform
from functools import cache
from importlib.util import find_spec

import torch


def compiles(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a model on ``device`` that computes in ``dtype`` is run by compiled kernels.

    Elsewhere the same arithmetic is done by torch: in other types, where numba has no release yet, and on processors
    whose own libraries multiply faster than code that was only tuned for others.
    """
    return device.type == "cpu" and dtype == torch.float32 and _compiler()


@cache
def _compiler() -> bool:
    if platform.machine() not in {"x86_64", "AMD64"} or find_spec("numba") is None:
        return False
    from agentcache_kernels.cpu.target import target

    return target().lanes > 4
