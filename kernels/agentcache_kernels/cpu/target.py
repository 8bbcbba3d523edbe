"""What the processor's vector registers hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import llvmlite.binding
from numba.core import config


@dataclass(frozen=True, slots=True)
class Target:
    """Sizes of product tiles: results and a line of the right side must fit the registers together.

    ``lanes`` float32 numbers make a vector; the rest are (rows, vectors) of tiles: of products with weights, and in attention of
    a tall one, for what is one vector wide like a page of keys, and a broad one, for what is four like a head of values.
    """

    lanes: int
    weights: tuple[int, int]
    tall: tuple[int, int]
    broad: tuple[int, int]


@cache
def target() -> Target:
    """Of the processor that compiled code is made for."""
    names = config.CPU_FEATURES
    if names is None:
        features = {name for name, there in llvmlite.binding.get_host_cpu_features().items() if there}
    else:
        features = {name[1:] for name in names.split(",") if name.startswith("+")}
    if "avx512f" in features:  # 32 registers of 16
        return Target(16, weights=(14, 2), tall=(14, 1), broad=(6, 4))
    if "avx2" in features:  # 16 registers of 8
        return Target(8, weights=(6, 2), tall=(12, 1), broad=(3, 4))
    return Target(4, weights=(2, 4), tall=(6, 1), broad=(2, 4))  # 16 registers of 4
