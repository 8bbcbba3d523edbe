"""Which rows meet which blocks of keys in one step, as tables for the compiled attention.

::

    a piece of a prompt, in tiles of rows:         single rows, grouped by the blocks that they hold:

      tile 0: rows 0..13   blocks 0 1 2            sequence 0:  | A | B | C |     tasks: A for 0 1 2, B for 0 1,
      tile 1: rows 14..27  blocks 0 1 2            sequence 1:  | A | B | D |            C for 0, D for 1
      each walks along its blocks and is done      sequence 2:  | A |             merged by sequence, in order of blocks
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from agentcache_kernels.blocks import PoolShape
from agentcache_kernels.cpu.target import target

if TYPE_CHECKING:
    from agentcache_kernels.batch import Span

Whole = npt.NDArray[np.int64]

_UNLIMITED = 2**40


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """A step's attention over pools of one shape, under one window."""

    tasks: Whole
    """``[tasks, 7]``: first of ``rows`` and how many, first and last block (exclusive), first of ``pages``, keys that the
    sequence has, and where results of blocks go (``slots``; -1: they are merged at once, the rows are done)."""
    rows: Whole
    """``[rows, 2]``: row of the step, position."""
    pages: Whole
    merges: Whole
    """``[single rows, 3]``: row of the step, first of ``merged_slots`` and how many."""
    merged_slots: Whole
    slots: int
    lines: int
    """No task has more than so many rows times query heads of one head of keys (at least one row)."""
    block_tokens: int
    window: int
    num_rows: int

    def covers(self, rows: int) -> bool:
        """Whether every one of the step's rows gets a result."""
        return self.num_rows == rows


def compiled_plan(spans: Sequence[Span], shape: PoolShape, window: int | None) -> CompiledPlan:
    """Raises ValueError when a page table names a page that the pool does not have."""
    lowest = min((min(span.pages) for span in spans), default=0)
    highest = max((max(span.pages) for span in spans), default=0)
    if lowest < 0 or highest >= shape.num_pages:
        raise ValueError(f"got pages {lowest} to {highest}, expected 0 to {shape.num_pages - 1}")
    return _Builder(shape, window).build(spans)


class _Builder:
    def __init__(self, shape: PoolShape, window: int | None) -> None:
        self.shape = shape
        self.window = _UNLIMITED if window is None else window
        # Lines of a task: several tiles of the product of scores, and little enough to stay in the nearest caches.
        self.rows_at_once = max(1, 3 * target().tall[0] // shape.group)
        self.tasks: list[tuple[int, ...]] = []
        self.rows: list[tuple[int, int]] = []
        self.pages: list[int] = []

    def build(self, spans: Sequence[Span]) -> CompiledPlan:
        alone = [span for span in spans if span.count == 1]
        for span in sorted(spans, key=lambda span: -span.context):
            if span.count > 1:
                self._tiles(span)
        found: list[list[int]] = [[] for _ in alone]
        slots = 0
        for block, owners in _shared_blocks(alone, self.shape, self.window):
            first = block * self.shape.block_pages
            pages = self._add_pages(alone[owners[0]].pages[first : first + self.shape.block_pages])
            for start in range(0, len(owners), self.rows_at_once):
                chosen = owners[start : start + self.rows_at_once]
                spans_ = [alone[owner] for owner in chosen]
                context = max(span.context for span in spans_)
                self.tasks.append((len(self.rows), len(chosen), block, block + 1, pages, context, slots))
                self.rows += [(span.first, span.context - 1) for span in spans_]
                for number, owner in enumerate(chosen):
                    found[owner].append(slots + number)
                slots += len(chosen)
        merges = np.zeros((len(alone), 3), np.int64)
        counts = [len(slots_) for slots_ in found]
        merges[:, 0] = [span.first for span in alone]
        merges[:, 1] = np.cumsum([0, *counts])[:-1]
        merges[:, 2] = counts
        return CompiledPlan(
            tasks=_table(self.tasks, 7),
            rows=_table(self.rows, 2),
            pages=np.array(self.pages, np.int64),
            merges=merges,
            merged_slots=np.array([slot for slots_ in found for slot in slots_], np.int64),
            slots=slots,
            lines=self.rows_at_once * self.shape.group,
            block_tokens=self.shape.block_tokens,
            window=self.window,
            num_rows=sum(span.count for span in spans),
        )

    def _tiles(self, span: Span) -> None:
        pages = self._add_pages(span.pages)
        tokens, block_pages = self.shape.block_tokens, self.shape.block_pages
        start = span.context - span.count
        # The last tiles see the most keys: begun first, they do not keep everybody waiting in the end.
        for begin in reversed(range(0, span.count, self.rows_at_once)):
            count = min(self.rows_at_once, span.count - begin)
            lowest = max(0, start + begin - self.window + 1) // tokens
            blocks = lowest, (start + begin + count - 1) // tokens + 1
            self.tasks.append((len(self.rows), count, *blocks, pages + lowest * block_pages, span.context, -1))
            self.rows += [(span.first + row, start + row) for row in range(begin, begin + count)]

    def _add_pages(self, pages: Sequence[int]) -> int:
        first = len(self.pages)
        self.pages += pages
        return first


def _shared_blocks(spans: Sequence[Span], shape: PoolShape, window: int) -> Iterator[tuple[int, list[int]]]:
    """Every block that a single row sees, once, in order of positions, with the sequences (by number) that hold it."""
    tokens, pages = shape.block_tokens, shape.block_pages
    groups = [(list(range(len(spans))), 0)] if spans else []
    while groups:
        following = []
        for owners, block in groups:
            parts: dict[tuple[int, ...], list[int]] = {}
            for owner in owners:
                span = spans[owner]
                if block * tokens >= span.context:
                    continue
                whole = (block + 1) * tokens <= span.context
                held = span.pages[block * pages : (block + 1) * pages] if whole else (-1 - owner,)
                parts.setdefault(tuple(held), []).append(owner)
            for part in parts.values():
                seeing = [owner for owner in part if (block + 1) * tokens > spans[owner].context - window]
                if seeing:
                    yield block, seeing
                following.append((part, block + 1))
        groups = following


def _table(lines: Sequence[tuple[int, ...]], width: int) -> Whole:
    return np.array(lines, np.int64).reshape(-1, width)
