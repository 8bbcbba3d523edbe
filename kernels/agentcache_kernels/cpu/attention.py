"""Attention of a step's rows over pages, compiled: pieces of prompts and single rows of many sequences in one call.

Flash attention (Dao et al., 2022) over pages: a *line* is one row's query head.  Keys are cut into blocks at fixed
positions, and every block gives a line a result, the greatest score and a sum of exponentials, which are merged in order
of blocks:

::

    positions:    0 ......... 255 | 256 ....... 511 | 512 ....... 767 |
    line at 600:  [ all seen     ]  [ all seen     ]  [ seen ]              M = max(M, m), O = O * a + o * c, ...

Which keys are in which block follows from positions alone, every number is a chain of the same operations in the same
order, and hidden keys add zeros.  So a line's bits depend on its query, its position and its keys and values, and neither
on the cut of the prompt, nor on the company, nor on which thread did the work.

Pieces of prompts are cut into tiles of some rows that walk along their blocks.  Single rows are grouped by blocks: one
that several sequences hold, because they share their beginning, is read once for all of them, and what the blocks gave is
merged afterwards (plan.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numba import prange
from torch import Tensor

from agentcache_kernels.cpu.compiling import check_float32, kernel, part, threads
from agentcache_kernels.cpu.emit_products import product_tile
from agentcache_kernels.cpu.emit_rows import LANES, copy, exp, exps, greatest, take, times
from agentcache_kernels.cpu.linear import even_share
from agentcache_kernels.cpu.plan import CompiledPlan
from agentcache_kernels.cpu.target import target

_WIDE, _NARROW = target().lanes, 4
_BROAD_ROWS, _BROAD = target().broad[0], target().broad[1] * _WIDE
_TALL_ROWS, _FEW_ROWS = target().tall[0], 4

_broad_tile = product_tile(*target().broad, _WIDE)
_tall_tile = product_tile(*target().tall, _WIDE)
_narrow_tile = product_tile(_FEW_ROWS, 1, _NARROW)
_single_tile = product_tile(_FEW_ROWS, 1, 1)


def attend(q: Tensor, k_pages: Tensor, v_pages: Tensor, plan: CompiledPlan, scale: float) -> Tensor:
    """Float32 ``[tokens, q_heads, head_dim]`` from queries of that shape.

    Args:
        q: float32, contiguous; rows that ``plan`` does not know give 0.
        k_pages: float32 ``[kv_heads, num_pages, page_size, head_dim]``, whose memory is in order ``[kv_heads, num_pages,
            head_dim, page_size]``: the same dimension of a page's keys is one vector.
        v_pages: float32 ``[kv_heads, num_pages, page_size, head_dim]``, contiguous.
        plan: of this step, for pools of this shape.
        scale: multiplies the scores.

    Raises:
        ValueError: another type, or memory in another order.
    """
    check_float32(q=q, keys=k_pages.transpose(2, 3), v_pages=v_pages)
    out = torch.empty_like(q) if plan.covers(q.shape[0]) else torch.zeros_like(q)
    tokens, q_heads, head_dim = q.shape
    kv_heads, num_pages, page_size, _ = k_pages.shape
    if tokens == 0 or len(plan.tasks) == 0:
        return out
    group = q_heads // kv_heads
    partial = np.empty((kv_heads, plan.slots * group, head_dim + 2), np.float32)
    counter = np.zeros(1, np.int64)
    _attend(
        q.data_ptr(), out.data_ptr(), k_pages.data_ptr(), v_pages.data_ptr(),
        plan.tasks, plan.rows, plan.pages, partial, counter,
        _Sizes(kv_heads, group, num_pages, page_size, head_dim, plan.block_tokens, plan.window),
        plan.lines, np.float32(scale), threads(),
    )  # fmt: skip
    if len(plan.merges):
        _merge_all(out.data_ptr(), partial, plan.merges, plan.merged_slots, kv_heads, group)
    return out


@part
def _product(
    a: int, lda: int, b: int, ldb: int, c: int, ldc: int, lines: int, columns: int, inner: int, more: int
) -> None:  # fmt: skip
    """C = A @ B of any size, by the widest tiles that fit; with ``more`` C goes on from what it holds.

    Scores are queries times a page of keys, and results are weights times rows of values.
    """
    column = 0
    while columns - column >= _BROAD:
        size = even_share(lines, _BROAD_ROWS)
        for line in range(0, lines, size):
            _broad_tile(
                min(size, lines - line), a + 4 * line * lda, lda, b + 4 * column, ldb, c + 4 * (line * ldc + column), ldc,
                inner, more,
            )  # fmt: skip
        column += _BROAD
    while columns - column >= _WIDE:
        size = even_share(lines, _TALL_ROWS)
        for line in range(0, lines, size):
            _tall_tile(
                min(size, lines - line), a + 4 * line * lda, lda, b + 4 * column, ldb, c + 4 * (line * ldc + column), ldc,
                inner, more,
            )  # fmt: skip
        column += _WIDE
    while columns - column >= _NARROW:
        for line in range(0, lines, _FEW_ROWS):
            _narrow_tile(
                min(_FEW_ROWS, lines - line), a + 4 * line * lda, lda, b + 4 * column, ldb,
                c + 4 * (line * ldc + column), ldc, inner, more,
            )  # fmt: skip
        column += _NARROW
    while column < columns:
        for line in range(0, lines, _FEW_ROWS):
            _single_tile(
                min(_FEW_ROWS, lines - line), a + 4 * line * lda, lda, b + 4 * column, ldb,
                c + 4 * (line * ldc + column), ldc, inner, more,
            )  # fmt: skip
        column += 1


@part
def _block_values(
    weights: int, stride: int, lines: int, values: int, pages: np.ndarray, width: int, page_size: int, dim: int,
    out: int, ldo: int,
) -> None:  # fmt: skip
    """Weighted values of a block; pages that lie one behind the other are one run."""
    key = 0
    while key < width:
        begin, page = key, pages[key // page_size]
        key += page_size
        while key < width and pages[key // page_size] == page + (key - begin) // page_size:
            key += page_size
        _product(
            weights + 4 * begin, stride, values + 4 * page * page_size * dim, dim, out, ldo,
            lines, dim, min(key, width) - begin, begin,
        )  # fmt: skip


@part
def _weigh(scores: np.ndarray, line: int, low: int, high: int, width: int) -> tuple[float, float]:
    """Turn the scores of keys ``low .. high`` into weights and the rest, up to ``width``, into 0: greatest score, sum."""
    vectors = (width + LANES - 1) // LANES
    for key in range(low):
        scores[line, key] = -np.inf
    for key in range(high, vectors * LANES):
        scores[line, key] = -np.inf
    address = scores.ctypes.data + 4 * line * scores.shape[1]
    top = greatest(address, vectors)
    shift = top if top > -np.inf else np.float32(0)
    return top, exps(address, vectors, shift)


@part
def _seen(position: int, start: int, width: int, window: int) -> tuple[int, int]:
    """Which of the ``width`` keys from ``start`` on the row at ``position`` sees: from .. to."""
    high = max(0, min(position + 1 - start, width))
    return min(max(0, position + 1 - window - start), high), high


@part
def _begin(line: np.ndarray) -> None:
    """An empty result: ``[head_dim + 2]``, of which the last two are the greatest score and the sum of exponentials."""
    line[:] = 0
    line[len(line) - 2] = -np.inf


@part
def _merge(line: np.ndarray, block: np.ndarray) -> None:
    """Add a block's result to a line's."""
    dim = len(line) - 2
    top = max(line[dim], block[dim])
    keep, add = exp(line[dim] - top), exp(block[dim] - top)
    for d in range(dim):
        line[d] = line[d] * keep + block[d] * add
    line[dim], line[dim + 1] = top, line[dim + 1] * keep + block[dim + 1] * add


@part
def _finish(line: np.ndarray, out: int) -> None:
    """Store the weighted mean; 0 where no key was seen."""
    dim = len(line) - 2
    total = line[dim + 1]
    if total != 0:
        for d in range(dim):
            line[d] /= total
    copy(line.ctypes.data, out, dim)


class _Sizes(NamedTuple):
    """Of pools and heads; ``group`` query heads read one head of keys."""

    kv_heads: int
    group: int
    num_pages: int
    page_size: int
    dim: int
    block_tokens: int
    window: int


@part
def _load_queries(q: int, rows: np.ndarray, head: int, sizes: _Sizes, scale: float, queries: np.ndarray) -> None:
    """The lines of ``rows`` for one head of keys, scaled: line = row * group + query head."""
    heads = sizes.kv_heads * sizes.group
    for line in range(len(rows) * sizes.group):
        token = rows[line // sizes.group, 0]
        source = q + 4 * (token * heads + head * sizes.group + line % sizes.group) * sizes.dim
        times(source, queries.ctypes.data + 4 * line * sizes.dim, sizes.dim, scale)


@part
def _block(
    queries: np.ndarray, rows: np.ndarray, keys: int, values: int, pages: np.ndarray, start: int, width: int,
    sizes: _Sizes, scores: np.ndarray, results: np.ndarray,
) -> None:  # fmt: skip
    """What the ``width`` keys in ``pages``, the first of them at position ``start``, give every line.

    ``results`` is ``[lines, dim + 2]``: weighted values, greatest score, sum of exponentials.
    """
    dim, page_size, lines = sizes.dim, sizes.page_size, len(results)
    stride = scores.shape[1]
    for number in range((width + page_size - 1) // page_size):
        _product(
            queries.ctypes.data, dim, keys + 4 * pages[number] * page_size * dim, page_size,
            scores.ctypes.data + 4 * number * page_size, stride, lines, page_size, dim, 0,
        )  # fmt: skip
    for line in range(lines):
        low, high = _seen(rows[line // sizes.group, 1], start, width, sizes.window)
        results[line, dim], results[line, dim + 1] = _weigh(scores, line, low, high, width)
    _block_values(
        scores.ctypes.data, stride, lines, values, pages, width, page_size, dim, results.ctypes.data, dim + 2
    )  # fmt: skip


@part
def _task(
    task: np.ndarray, head: int, q: int, out: int, k_pool: int, v_pool: int, rows: np.ndarray, pages: np.ndarray,
    partial: np.ndarray, sizes: _Sizes, scale: float, queries: np.ndarray, scores: np.ndarray, block_results: np.ndarray,
    merged: np.ndarray,
) -> None:  # fmt: skip
    """One of the plan's tasks, for one head of keys."""
    row0, count, first, last, page0, context, slot = task
    own = rows[row0 : row0 + count]
    group, dim, tokens = sizes.group, sizes.dim, sizes.block_tokens
    lines = count * group
    pool = 4 * head * sizes.num_pages * sizes.page_size * dim
    keys, values = k_pool + pool, v_pool + pool
    _load_queries(q, own, head, sizes, scale, queries)
    reach = min(context, own[count - 1, 1] + 1)  # no row sees what lies beyond
    if slot >= 0:
        results = partial[head, slot * group : slot * group + lines]
        width = min(reach - first * tokens, tokens)
        _block(queries, own, keys, values, pages[page0:], first * tokens, width, sizes, scores, results)
        return
    results = block_results[:lines]
    for line in range(lines):
        _begin(merged[line])
    for block in range(first, last):
        start = block * tokens
        width = min(reach - start, tokens)
        block_pages = pages[page0 + (block - first) * (tokens // sizes.page_size) :]
        _block(queries, own, keys, values, block_pages, start, width, sizes, scores, results)
        for line in range(lines):
            low, high = _seen(own[line // group, 1], start, width, sizes.window)
            if low < high:
                _merge(merged[line], results[line])
    heads = sizes.kv_heads * group
    for line in range(lines):
        _finish(merged[line], out + 4 * (own[line // group, 0] * heads + head * group + line % group) * dim)


@kernel
def _attend(
    q: int, out: int, k_pool: int, v_pool: int, tasks: np.ndarray, rows: np.ndarray, pages: np.ndarray,
    partial: np.ndarray, counter: np.ndarray, sizes: _Sizes, most_lines: int, scale: float, workers: int,
) -> None:  # fmt: skip
    units = len(tasks) * sizes.kv_heads
    for _ in prange(workers):
        queries = np.empty((most_lines, sizes.dim), np.float32)
        scores = np.empty((most_lines, (sizes.block_tokens + LANES - 1) // LANES * LANES), np.float32)
        block_results = np.empty((most_lines, sizes.dim + 2), np.float32)
        merged = np.empty((most_lines, sizes.dim + 2), np.float32)
        unit = take(counter.ctypes.data)
        while unit < units:
            _task(
                tasks[unit // sizes.kv_heads], unit % sizes.kv_heads, q, out, k_pool, v_pool, rows, pages, partial,
                sizes, scale, queries, scores, block_results, merged,
            )  # fmt: skip
            unit = take(counter.ctypes.data)


@kernel
def _merge_all(out: int, partial: np.ndarray, merges: np.ndarray, slots: np.ndarray, kv_heads: int, group: int) -> None:
    """For each of ``merges`` (token, first, count): put together what the tasks of ``slots[first : first + count]`` gave."""
    dim = partial.shape[2] - 2
    heads = kv_heads * group
    for unit in prange(len(merges) * heads):
        merge, head = unit // heads, unit % heads
        line = np.empty(dim + 2, np.float32)
        _begin(line)
        for number in range(merges[merge, 1], merges[merge, 1] + merges[merge, 2]):
            _merge(line, partial[head // group, slots[number] * group + head % group])
        _finish(line, out + 4 * (merges[merge, 0] * heads + head) * dim)
