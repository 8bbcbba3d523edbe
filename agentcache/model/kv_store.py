"""Keys and values of every layer, in pages."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agentcache.cache.pages import PageCopy
from agentcache_kernels import copy_pages


class KVStore:
    """One pair of tensors per layer: ``k[layer]`` and ``v[layer]``, ``[kv_heads, num_pages, page_size, head_dim]``.

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
    ) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        shape = (kv_heads, num_pages, page_size, head_dim)
        self.k = [torch.empty(shape, dtype=dtype, device=device) for _ in range(num_layers)]
        self.v = [torch.empty(shape, dtype=dtype, device=device) for _ in range(num_layers)]

    @staticmethod
    def bytes_per_page(num_layers: int, page_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Bytes that one page takes over all layers, keys and values."""
        return 2 * num_layers * page_size * kv_heads * head_dim * int(dtype.itemsize)

    def copy(self, copies: Sequence[PageCopy]) -> None:
        """Make the copies in order, in every layer."""
        if not copies:
            return
        triples = [(copy.source, copy.target, copy.tokens) for copy in copies]
        for k, v in zip(self.k, self.v, strict=True):
            copy_pages(k, v, triples)
