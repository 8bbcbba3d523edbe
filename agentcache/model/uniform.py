"""Uniform numbers that depend on (seed, position) only: Philox 4x64 (Salmon et al., SC 2011), for many rows at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_Words = NDArray[np.uint64]

_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> NDArray[np.float64]:
    """One number in [0, 1) for each (seed, position): the first that numpy's ``Philox(key=seed, counter=position)`` gives.

    Args:
        seeds: any integers; their lowest 64 bits count.
        positions: from 0 to 2**64 - 2.
    """
    count = len(seeds)
    # numpy counts on before it draws; the counter's and the key's upper words are zero.
    c0, c1, c2, c3 = (np.zeros(count, np.uint64) for _ in range(4))
    c0 += np.array(positions, dtype=np.uint64) + np.uint64(1)
    k0 = np.array([seed % 2**64 for seed in seeds], dtype=np.uint64)
    k1 = np.zeros(count, np.uint64)
    for _ in range(_ROUNDS):
        high0, low0 = _product(_MULTIPLIERS[0], c0)
        high1, low1 = _product(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + np.uint64(_WEYL[0]), k1 + np.uint64(_WEYL[1])
    numbers: NDArray[np.float64] = (c0 >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


def uniform(seed: int, position: int) -> float:
    """The same for one row."""
    return float(uniforms([seed], [position])[0])


def _product(a: int, b: _Words) -> tuple[_Words, _Words]:
    """Upper and lower 64 bits of ``a * b``, from products of halves."""
    a_low, a_high = np.uint64(a & 0xFFFFFFFF), np.uint64(a >> 32)
    b_low, b_high = b & _LOW, b >> _HALF
    cross, other = a_high * b_low, a_low * b_high
    carry = ((a_low * b_low) >> _HALF) + (cross & _LOW) + (other & _LOW)
    high = a_high * b_high + (cross >> _HALF) + (other >> _HALF) + (carry >> _HALF)
    return high, np.uint64(a) * b
