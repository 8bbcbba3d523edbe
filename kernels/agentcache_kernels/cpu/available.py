"""Where compiled kernels can be used."""

from __future__ import annotations

import logging
import platform
from functools import cache

import torch

logger = logging.getLogger(__name__)


def compiles(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a model on ``device`` that computes in ``dtype`` is run by compiled kernels.

    Elsewhere the same arithmetic is done by torch: in other types, where numba has no release yet, and on processors
    whose own libraries multiply faster than code that was only tuned for others.
    """
    return device.type == "cpu" and dtype == torch.float32 and _compiler()


@cache
def _compiler() -> bool:
    if platform.machine() not in {"x86_64", "AMD64"}:
        return False
    try:
        from numba.core import config

        from agentcache_kernels.cpu.target import target
    except ModuleNotFoundError:
        return False
    except ImportError as error:  # it says what it wants, such as an older numpy
        logger.warning("kernels for this processor cannot be compiled, and torch's operators are used: %s", error)
        return False
    return not config.DISABLE_JIT and target().lanes > 4
