"""Pinned host memory for pages, taken from the system in slabs: that takes long, and may stop the device."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_SLAB = 64
"""Pages that are taken at once."""


class PinnedPages:
    """Rooms of ``page_bytes``, each somebody's until nobody refers to it any more.

    A room may be given out again while a copy into it or out of it is still queued, so all copies must be made on one stream,
    and only the device may write.

    Args:
        pinned: whether there is a device for which memory is pinned.
    """

    def __init__(self, page_bytes: int, pinned: bool) -> None:
        self._page_bytes = page_bytes
        self._pinned = pinned
        self._free: list[NDArray[np.uint8]] = []
        self.taken = 0
        """Rooms that the system gave, in all."""

    def room(self) -> memoryview:
        """Room for a page, which holds anything."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        own: NDArray[Any] = row[:]  # an object of its own, whose end is the end of the last reference
        weakref.finalize(own, self._free.append, row)
        return own.data

    def _grow(self) -> None:
        slab = torch.empty((_SLAB, self._page_bytes), dtype=torch.uint8, pin_memory=self._pinned).numpy()
        self._free += list(slab)
        self.taken += _SLAB
