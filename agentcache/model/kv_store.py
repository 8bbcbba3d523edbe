"""Keys and values of every layer, in pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import torch

from agentcache.cache.pages import PageCopy, PageLoad
from agentcache.cache.tiers import Data
from agentcache_kernels import copy_pages
from agentcache_kernels.cpu.available import compiles


class KVStore:
    """One pair of tensors per layer: ``k[layer]`` and ``v[layer]``, ``[kv_heads, num_pages, page_size, head_dim]``.

    With ``compiled``, for the kernels in ``agentcache_kernels.cpu``, the memory of keys is in order ``[kv_heads, num_pages,
    head_dim, page_size]``, so that they read the same dimension of neighbouring keys as one vector; the shape stays.

    Memory is reserved but not touched: a page costs real memory once it is written, and what an unwritten slot holds is
    undefined.  Attention never lets such a slot into a result.
    """

    def __init__(  # noqa: PLR0917 (a shape, read in the order of its dimensions)
        self,
        num_layers: int,
        num_pages: int,
        page_size: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        compiled: bool | None = None,
    ) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        shape = (kv_heads, num_pages, page_size, head_dim)
        self.compiled = compiles(device, dtype) if compiled is None else compiled
        turned = (kv_heads, num_pages, head_dim, page_size)
        self.k = [
            torch.empty(turned, dtype=dtype, device=device).transpose(2, 3)
            if self.compiled
            else torch.empty(shape, dtype=dtype, device=device)
            for _ in range(num_layers)
        ]
        self.v = [torch.empty(shape, dtype=dtype, device=device) for _ in range(num_layers)]

    @staticmethod
    def bytes_per_page(num_layers: int, page_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Bytes that one page takes over all layers, keys and values."""
        return 2 * num_layers * page_size * kv_heads * head_dim * int(dtype.itemsize)

    def copy(self, copies: Sequence[PageCopy | PageLoad]) -> None:
        """Copy and fill pages, in order, in every layer."""
        for is_load, run in groupby(copies, key=lambda step: isinstance(step, PageLoad)):
            if is_load:
                for load in run:
                    self.write_page(load.target, load.data)  # type: ignore[union-attr]
                continue
            triples = [(copy.source, copy.target, copy.tokens) for copy in run]  # type: ignore[union-attr]
            for k, v in zip(self.k, self.v, strict=True):
                copy_pages(k, v, triples)

    def read_page(self, page: int) -> memoryview:
        """A copy of one page in host memory: ``[2 * layers, kv_heads, page_size, head_dim]``, keys of all layers first."""
        content = torch.stack([pages[:, page] for pages in (*self.k, *self.v)])
        return memoryview(content.cpu().view(torch.uint8).numpy()).cast("B")

    def write_page(self, page: int, data: Data) -> None:
        """Fill a page with what ``read_page`` gave.

        Raises:
            ValueError: ``data`` is not as long as a page.
        """
        first = self.k[0]
        shape = (2 * len(self.k), first.shape[0], *first.shape[2:])
        expected = math.prod(shape) * first.element_size()
        if len(data) != expected:
            raise ValueError(f"got {len(data)} bytes for page {page}, expected {expected}")
        content = torch.frombuffer(bytearray(data), dtype=first.dtype).view(shape).to(first.device)
        for pages, rows in zip((*self.k, *self.v), content, strict=True):
            pages[:, page] = rows
