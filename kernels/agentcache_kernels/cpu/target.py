"""What the processor's vector registers hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import llvmlite.binding
from numba.core import config


@dataclass(frozen=True, slots=True)
class Target:
    """Sizes of product tiles: results and a line of the right side must fit the registers together.

    ``lanes`` float32 numbers make a vector.  ``wide`` and ``tall`` are (rows, vectors) of a tile: of products with
    weights, and of those in attention, where a page of keys is one vector and a head of values is four.
    """

    lanes: int
    weights: tuple[int, int]
    scores: tuple[int, int]
    values: tuple[int, int]


@cache
def target() -> Target:
    """Of the processor that compiled code is made for."""
    names = config.CPU_FEATURES
    if names is None:
        features = {name for name, there in llvmlite.binding.get_host_cpu_features().items() if there}
    else:
        features = {name[1:] for name in names.split(",") if name.startswith("+")}
    if "avx512f" in features:  # 32 registers of 16
        return Target(16, weights=(14, 2), scores=(14, 1), values=(6, 4))
    if "avx2" in features:  # 16 registers of 8
        return Target(8, weights=(6, 2), scores=(12, 1), values=(3, 4))
    return Target(4, weights=(2, 4), scores=(6, 1), values=(2, 4))  # 16 registers of 4
