"""What surrounds the products of a layer, row by row: norms, rotary positions with the page writes, the gate.

Float32 and contiguous throughout.  A few rows are done by the calling thread: waking others would take longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from numba import prange
from torch import Tensor

from agentcache_kernels.cpu.compiling import check_float32, kernel, part, threads
from agentcache_kernels.cpu.emit_rows import add, copy, rotate, scaled, silu_mul, squares, store_strided

_FEW_NUMBERS = 2**15
"""So many numbers are not worth another thread."""


def _workers(numbers: int) -> int:
    workers = threads()  # in any case: no kernel may run before numba's threads were started as they should be
    return workers if numbers > _FEW_NUMBERS else 1


def add_rms_norm(hidden: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """``hidden += delta``; then hidden scaled to a mean square of 1 in each row, times ``weight``, as a new tensor.

    Args:
        hidden, delta: ``[rows, width]``.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    check_float32(hidden=hidden, weight=weight)
    rows, width = hidden.shape
    if delta is not None:
        check_float32(delta=delta)
    if weight.shape != (width,) or (delta is not None and delta.shape != hidden.shape):
        raise ValueError(
            f"got {hidden.shape}, {None if delta is None else delta.shape} and {weight.shape}, expected one size"
        )
    out = torch.empty_like(hidden)
    _add_rms_norm(
        hidden.data_ptr(), 0 if delta is None else delta.data_ptr(), weight.data_ptr(), out.data_ptr(),
        rows, width, np.float32(eps), _workers(rows * width),
    )  # fmt: skip
    return out


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """``silu(gate) * up`` ``[rows, width]`` of ``gate_up`` ``[rows, 2 * width]`` (Shazeer, "GLU Variants", 2020)."""
    check_float32(gate_up=gate_up)
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, width)
    _silu_and_mul(gate_up.data_ptr(), out.data_ptr(), rows, width, _workers(rows * width))
    return out


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """RMSNorm of every query and key head before it is turned (Qwen 3): one row of ``weight`` for each."""

    weight: Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class Turns:
    """Where a step's rows stand, and where their keys and values go.

    ``cos`` and ``sin`` are ``[positions, head_dim / 2]``; ``positions`` and ``slots`` ``[rows]``, slot -1: nowhere.
    """

    cos: Tensor
    sin: Tensor
    positions: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    last_slot: int
    """The greatest of ``slots``."""

    @classmethod
    def of(cls, cos: Tensor, sin: Tensor, positions: Tensor, slots: Tensor) -> Turns:
        """From int64 tensors ``[rows]``."""
        check_float32(cos=cos, sin=sin)
        places, targets = positions.contiguous().numpy(), slots.contiguous().numpy()
        if len(places) and not 0 <= places.min() <= places.max() < len(cos):
            raise ValueError(f"got positions {places.min()} to {places.max()}, expected 0 to {len(cos) - 1}")
        return cls(cos, sin, places, targets, int(targets.max(initial=-1)))


def rotate_and_write(qkv: Tensor, turns: Turns, k_pages: Tensor, v_pages: Tensor, norm: HeadNorm | None) -> Tensor:
    """Turn queries and keys to their positions, store keys and values in their slots.

    Args:
        qkv: ``[rows, (q_heads + 2 * kv_heads) * head_dim]``.
        k_pages, v_pages: as in :func:`agentcache_kernels.cpu.attention.attend`.

    Returns:
        The queries, ``[rows, q_heads, head_dim]``.
    """
    check_float32(qkv=qkv, keys=k_pages.transpose(2, 3), v_pages=v_pages)
    kv_heads, num_pages, page_size, head_dim = k_pages.shape
    rows = qkv.shape[0]
    if len(turns.positions) != rows or turns.last_slot >= num_pages * page_size:
        raise ValueError(
            f"got {len(turns.positions)} positions and slots up to {turns.last_slot} for {rows} rows, expected one for each and "
            f"slots below {num_pages * page_size}"
        )
    heads = qkv.shape[1] // head_dim
    q = qkv.new_empty(rows, heads - 2 * kv_heads, head_dim)
    _rotate_and_write(
        qkv.data_ptr(), q.data_ptr(), k_pages.data_ptr(), v_pages.data_ptr(),
        turns.cos.data_ptr(), turns.sin.data_ptr(), turns.positions, turns.slots,
        0 if norm is None else norm.weight.data_ptr(), np.float32(0 if norm is None else norm.eps),
        rows, heads - 2 * kv_heads, kv_heads, num_pages, page_size, head_dim, _workers(qkv.numel()),
    )  # fmt: skip
    return q


@part
def _share(rows: int, worker: int, workers: int) -> tuple[int, int]:
    return rows * worker // workers, rows * (worker + 1) // workers


@part
def _normed(x: int, weight: int, out: int, width: int, eps: float) -> None:
    scale = np.float32(1) / np.float32(math.sqrt(squares(x, width) / np.float32(width) + eps))
    scaled(x, weight, out, width, scale)


@part
def _norm_rows(hidden: int, delta: int, weight: int, out: int, first: int, last: int, width: int, eps: float) -> None:
    for row in range(first, last):
        at = 4 * row * width
        if delta:
            add(hidden + at, delta + at, width)
        _normed(hidden + at, weight, out + at, width, eps)


@kernel
def _add_rms_norm(
    hidden: int, delta: int, weight: int, out: int, rows: int, width: int, eps: float, workers: int
) -> None:
    if workers == 1:
        _norm_rows(hidden, delta, weight, out, 0, rows, width, eps)
    else:
        for worker in prange(workers):
            first, last = _share(rows, worker, workers)
            _norm_rows(hidden, delta, weight, out, first, last, width, eps)


@part
def _gate_rows(gate_up: int, out: int, first: int, last: int, width: int) -> None:
    for row in range(first, last):
        gate = gate_up + 8 * row * width
        silu_mul(gate, gate + 4 * width, out + 4 * row * width, width)


@kernel
def _silu_and_mul(gate_up: int, out: int, rows: int, width: int, workers: int) -> None:
    if workers == 1:
        _gate_rows(gate_up, out, 0, rows, width)
    else:
        for worker in prange(workers):
            first, last = _share(rows, worker, workers)
            _gate_rows(gate_up, out, first, last, width)


@part
def _rotate_rows(
    qkv: int, q: int, k_pool: int, v_pool: int, cos: int, sin: int, positions: np.ndarray, slots: np.ndarray,
    norms: int, eps: float, first: int, last: int, q_heads: int, kv_heads: int, num_pages: int, page_size: int, dim: int,
) -> None:  # fmt: skip
    heads = q_heads + 2 * kv_heads
    key = np.empty(dim, np.float32)
    for row in range(first, last):
        turn = 4 * positions[row] * (dim // 2)
        page, offset = slots[row] // page_size, slots[row] % page_size
        for head in range(q_heads + kv_heads):
            x = qkv + 4 * (row * heads + head) * dim
            if norms:
                _normed(x, norms + 4 * head * dim, x, dim, eps)
            if head < q_heads:
                rotate(x, cos + turn, sin + turn, q + 4 * (row * q_heads + head) * dim, dim // 2)
            elif slots[row] >= 0:
                rotate(x, cos + turn, sin + turn, key.ctypes.data, dim // 2)
                target = k_pool + 4 * (((head - q_heads) * num_pages + page) * page_size * dim + offset)
                store_strided(key.ctypes.data, target, dim, page_size)
        if slots[row] >= 0:
            for head in range(kv_heads):
                x = qkv + 4 * (row * heads + q_heads + kv_heads + head) * dim
                copy(x, v_pool + 4 * ((head * num_pages + page) * page_size + offset) * dim, dim)


@kernel
def _rotate_and_write(
    qkv: int, q: int, k_pool: int, v_pool: int, cos: int, sin: int, positions: np.ndarray, slots: np.ndarray,
    norms: int, eps: float, rows: int, q_heads: int, kv_heads: int, num_pages: int, page_size: int, dim: int,
    workers: int,
) -> None:  # fmt: skip
    if workers == 1:
        _rotate_rows(
            qkv, q, k_pool, v_pool, cos, sin, positions, slots, norms, eps,
            0, rows, q_heads, kv_heads, num_pages, page_size, dim,
        )  # fmt: skip
    else:
        for worker in prange(workers):
            first, last = _share(rows, worker, workers)
            _rotate_rows(
                qkv, q, k_pool, v_pool, cos, sin, positions, slots, norms, eps,
                first, last, q_heads, kv_heads, num_pages, page_size, dim,
            )  # fmt: skip
