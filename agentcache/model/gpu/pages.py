"""Pages copied inside the pool by one launch, and moved to host memory and back beside the computation.

::

    out:   pool ──gather──► staging ──DMA──► pinned memory          all on the side; the next step waits before it writes
    in:    pinned memory ──DMA──► staging (side) ──scatter──► pool  (main, in the order of the step's list)

A page travels as ``[2 * layers, kv_heads, page_size, head_dim]``, keys of all layers first, as ``KVStore`` packs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from agentcache.cache.pages import PageCopy, PageLoad
from agentcache.cache.tiers import Data
from agentcache.model.gpu.pinned import PinnedPages
from agentcache.model.gpu.side import Side
from agentcache.model.kv_store import KVStore
from agentcache_kernels.gpu import PagePool, copy_waves, page_copy

_STAGED = 16
"""Pages that are brought in by one scatter."""


class DevicePages:
    """The ``PageIO`` of a GPU."""

    def __init__(self, kv: KVStore, side: Side) -> None:
        tensors = [*kv.k, *kv.v]
        first = tensors[0]
        device = first.device
        self._kv = kv
        self._side = side
        self._pool = PagePool.of(tensors, device)
        shape = (len(tensors), first.shape[0], *first.shape[2:])
        self._in = torch.empty((_STAGED, *shape), dtype=first.dtype, device=device)
        self._out = torch.empty((1, *shape), dtype=first.dtype, device=device)
        self._in_pool = _as_pool(self._in)
        self._out_pool = _as_pool(self._out)
        self._rooms = PinnedPages(self.page_bytes, device.type == "cuda")

    @property
    def page_bytes(self) -> int:
        return int(self._out.nbytes)

    def copy(self, copies: Sequence[PageCopy | PageLoad]) -> None:
        """Copy and fill pages, as if in order.  Called once before every step: pages that are on their way out are not
        written before they have left."""
        self._side.main_waits()
        for is_load, run in groupby(copies, key=lambda step: isinstance(step, PageLoad)):
            steps = list(run)
            if is_load:
                for first in range(0, len(steps), _STAGED):
                    self._load(steps[first : first + _STAGED])  # type: ignore[arg-type]
                continue
            for wave in copy_waves([(copy.source, copy.target, copy.tokens) for copy in steps]):  # type: ignore[union-attr]
                page_copy(self._pool, self._pool, wave).run()

    def warm_up(self) -> None:
        """Compile the kernel: page 0 goes out, comes back to itself, and is copied onto itself."""
        self.copy([PageLoad(0, self.read_page(0)), PageCopy(0, 0, self._kv.page_size)])

    def read_page(self, page: int) -> memoryview:
        """A copy of one page in pinned memory, whole once :meth:`when_read` says so."""
        data = self._rooms.room()
        content = torch.frombuffer(data, dtype=torch.uint8)

        def move() -> None:
            page_copy(self._pool, self._out_pool, [(page, 0, self._kv.page_size)]).run()
            content.copy_(self._out.view(-1).view(torch.uint8), non_blocking=True)

        self._side.submit(move)
        return data

    def when_read(self) -> Callable[[], None]:
        """What returns once every page read so far is whole, on any thread."""
        return self._side.waiter()

    def write_page(self, page: int, data: Data) -> None:
        """Fill a page with what :meth:`read_page` gave.

        Raises:
            ValueError: ``data`` is not as long as a page.
        """
        self._load([PageLoad(page, data)])

    def _load(self, loads: Sequence[PageLoad]) -> None:
        sources = [self._pinned(load) for load in loads]

        def move() -> None:
            for place, source in enumerate(sources):
                self._in[place].view(-1).view(torch.uint8).copy_(source, non_blocking=True)

        self._side.submit(move)
        self._side.main_waits()
        # Two loads may name one page, of which the later one counts.
        for wave in copy_waves([(place, load.target, self._kv.page_size) for place, load in _last_of_each(loads)]):
            page_copy(self._in_pool, self._pool, wave).run()

    def _pinned(self, load: PageLoad) -> Tensor:
        if len(load.data) != self.page_bytes:
            raise ValueError(f"got {len(load.data)} bytes for page {load.target}, expected {self.page_bytes}")
        if isinstance(load.data, memoryview) and not load.data.readonly:
            mine = torch.frombuffer(load.data, dtype=torch.uint8)  # what read_page gave, or as good
            if self._in.device.type != "cuda" or mine.is_pinned():
                return mine
        # torch does not give this out again before the copy out of it has ended.
        pinned = torch.empty(self.page_bytes, dtype=torch.uint8, pin_memory=self._in.device.type == "cuda")
        pinned.numpy()[:] = np.frombuffer(load.data, dtype=np.uint8)
        return pinned


def _last_of_each(loads: Sequence[PageLoad]) -> list[tuple[int, PageLoad]]:
    return list({load.target: (place, load) for place, load in enumerate(loads)}.values())


def _as_pool(staging: Tensor) -> PagePool:
    """``[pages, 2 * layers, kv_heads, page_size, head_dim]`` as the tensors of a store."""
    return PagePool.of([staging[:, index].transpose(0, 1) for index in range(staging.shape[1])], staging.device)
