"""The rows of a step as numbers: which token, at which position, and where its keys and values go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agentcache.scheduler.plan import Chunk


def step_rows(chunks: Sequence[Chunk], page_size: int) -> NDArray[np.int64]:
    """``[3, rows]``: token ids, positions, and slots (-1: keys and values of the row exist already), chunk after chunk.

    ::

        positions:  start ..... write_from ................ end
        slots:      -1 ... -1   page * page_size + offset ...
    """
    if all(chunk.count == 1 for chunk in chunks):
        singles = np.array([_single_row(chunk, page_size) for chunk in chunks], np.int64)
        columns: NDArray[np.int64] = singles.reshape(-1, 3).T
        return columns
    rows = np.empty((3, sum(chunk.count for chunk in chunks)), np.int64)
    first = 0
    for chunk in chunks:
        last = first + chunk.count
        if chunk.count == 1:
            rows[:, first] = _single_row(chunk, page_size)
        else:
            ids, positions, slots = rows[:, first:last]
            ids[:] = np.frombuffer(chunk.sequence.tokens.ids(chunk.start, chunk.end), np.uint32)
            positions[:] = np.arange(chunk.start, chunk.end)
            slots[:] = write_slots(chunk, page_size)
        first = last
    return rows


def write_slots(chunk: Chunk, page_size: int) -> NDArray[np.int64]:
    """Where each row's keys and values go; -1 for positions that have theirs already."""
    start, end = max(chunk.start, min(chunk.write_from, chunk.end)), chunk.end
    slots = np.full(chunk.count, -1, np.int64)
    if start < end:
        first = start // page_size
        pages = np.array(chunk.pages[first : (end - 1) // page_size + 1], np.int64)
        of_pages = pages[:, None] * page_size + np.arange(page_size)
        slots[start - chunk.start :] = of_pages.reshape(-1)[start - first * page_size : end - first * page_size]
    return slots


def _single_row(chunk: Chunk, page_size: int) -> tuple[int, int, int]:
    position = chunk.start
    page, offset = divmod(position, page_size)
    slot = chunk.pages[page] * page_size + offset if position >= chunk.write_from else -1
    return chunk.sequence.tokens[position], position, slot
