"""Writing keys and values into pages, and copying pages.

One layer's pages are ``[kv_heads, num_pages, page_size, head_dim]``::

    head 0: | page 0: slot 0 .. slot page_size-1 | page 1 ... | page num_pages-1 |
    head 1: | ...

so that all pages of one head lie in one piece: a run of neighbouring pages is a matrix ``[tokens, head_dim]`` without
any copy, and one ``index_select`` over pages gathers a sequence for every head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class PageWrites:
    """Which rows of a step are stored, and where; built once a step for all layers."""

    rows: Tensor | None
    """int64, or ``None``: all rows, in order."""
    slots: Tensor
    """int64, one for each of ``rows``: ``page * page_size + offset``."""

    @classmethod
    def of(cls, slots: Tensor) -> PageWrites:
        """From int64 ``[tokens]``; -1 stores nothing.  No slot may occur twice."""
        kept = (slots >= 0).nonzero().squeeze(1)
        return cls(None, slots) if kept.numel() == slots.numel() else cls(kept, slots[kept])


def write_kv(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, writes: PageWrites) -> None:
    """Store one step's keys and values in their slots.

    Args:
        k, v: ``[tokens, kv_heads, head_dim]``.
        k_pages, v_pages: ``[kv_heads, num_pages, page_size, head_dim]``, contiguous, written in place.
    """
    if writes.slots.numel() == 0:
        return
    if writes.rows is not None:
        k, v = k[writes.rows], v[writes.rows]
    for rows, pages in ((k, k_pages), (v, v_pages)):
        flat = pages.view(pages.shape[0], -1, pages.shape[3])
        flat.index_copy_(1, writes.slots, rows.to(pages.dtype).transpose(0, 1))


def copy_pages(k_pages: Tensor, v_pages: Tensor, copies: Sequence[tuple[int, int, int]]) -> None:
    """Copy the first ``tokens`` slots of page ``source`` into page ``target`` for each ``(source, target, tokens)``.

    The copies are made in order, so a page may be the target of one and the source of a later one.
    """
    for source, target, tokens in copies:
        k_pages[:, target, :tokens] = k_pages[:, source, :tokens]
        v_pages[:, target, :tokens] = v_pages[:, source, :tokens]
