"""Token ids of one sequence, cut into pages whose keys are computed once."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import overload

from agentcache.cache.hashing import TOKEN_BYTES, page_digest


class PagedTokens:
    """An append-only list of token ids with the chained keys of its full pages.

    ::

        ids:   t0 t1 t2 t3 | t4 t5 t6 t7 | t8 t9            page_size = 4
        keys:     key(0)   |    key(1)   | (no key: the tail is not full)

    Keys are computed on demand and kept, so a transcript that grows by two pages costs two hashes.

    Args:
        ids: token ids, each from 0 to 2**32 - 1.
        page_size: tokens a page.
        root: the namespace root (``hashing.namespace_root``).
    """

    __slots__ = ("_ids", "_keys", "page_size", "root")

    def __init__(self, ids: Iterable[int], page_size: int, root: bytes) -> None:
        self._ids = array("I", ids)
        self._keys: list[bytes] = []
        self.page_size = page_size
        self.root = root

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return self._ids[index].tolist()
        return self._ids[index]

    def append(self, token: int) -> None:
        self._ids.append(token)

    def extend(self, ids: Iterable[int]) -> None:
        self._ids.extend(ids)

    def copy(self) -> PagedTokens:
        """An independent copy that keeps the keys computed so far."""
        twin = PagedTokens(self._ids, self.page_size, self.root)
        twin._keys = self._keys.copy()
        return twin

    @property
    def num_full_pages(self) -> int:
        return len(self._ids) // self.page_size

    def packed(self) -> bytes:
        """All ids, 4 bytes little-endian each; page i is bytes [i * page_size * 4, (i + 1) * page_size * 4)."""
        if sys.byteorder == "little":
            return self._ids.tobytes()
        swapped = array("I", self._ids)
        swapped.byteswap()
        return swapped.tobytes()

    def page_bytes(self, page: int) -> bytes:
        """Packed ids of full page ``page``."""
        start = page * self.page_size
        ids = self._ids[start : start + self.page_size]
        if sys.byteorder == "big":
            ids.byteswap()
        return ids.tobytes()

    def keys(self, count: int) -> list[bytes]:
        """Keys of at least the first ``count`` pages (callers may not change the list).

        Raises:
            IndexError: fewer than ``count`` pages are full.
        """
        keys = self._keys
        done = len(keys)
        if done >= count:
            return keys
        if count > self.num_full_pages:
            raise IndexError(f"asked for {count} page keys, only {self.num_full_pages} pages are full")
        if count - done == 1:  # the decode path: one page filled up
            keys.append(page_digest((keys[-1] if keys else self.root) + self.page_bytes(done)))
            return keys
        width = self.page_size * TOKEN_BYTES
        data = self.packed()
        parent = keys[-1] if keys else self.root
        for start in range(done * width, count * width, width):
            parent = page_digest(parent + data[start : start + width])
            keys.append(parent)
        return keys

    def key(self, page: int) -> bytes:
        return self.keys(page + 1)[page]
