"""Token ids of one sequence, cut into pages whose keys are computed once."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, overload

from agentcache.cache.hashing import TOKEN_BYTES, namespace_root, page_digest


@dataclass(frozen=True, slots=True)
class Trail:
    """Where a sequence was found to end in the tree: the next walk goes on from there, if that very node is still in it.

    Attributes:
        key, serial: name and number of the node; a node that left and came back has another number.
        pages: of the sequence, up to the node or less: then the walk goes on from a node above.
    """

    key: bytes
    serial: int
    pages: list[int]


class PublicPart(NamedTuple):
    """The first ``pages`` pages of a sequence, which are keyed under ``root`` and shared by every namespace."""

    root: bytes
    pages: int


@dataclass(slots=True)
class Bookmark:
    """What a conversation's last request knew of its tokens, for the next one to go on from."""

    tokens: PagedTokens | None = None


def common_pages(a: array[int], b: array[int], page_size: int) -> int:
    """Full pages that both begin with.  Compares bytes, and halves what differs."""
    low, high = 0, min(len(a), len(b)) // page_size
    one, two = memoryview(a), memoryview(b)
    middle = high
    while low < high:  # the first ``low`` pages are equal, the first ``high + 1`` are not
        if one[low * page_size : middle * page_size].tobytes() == two[low * page_size : middle * page_size].tobytes():
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


class PagedTokens:
    """An append-only list of token ids with the chained keys of its full pages.

    ::

        ids:   t0 t1 t2 t3 | t4 t5 t6 t7 | t8 t9            page_size = 4
        keys:     key(0)   |    key(1)   | (no key: the tail is not full)

    Keys are computed on demand and kept, so a transcript that grows by two pages costs two hashes.  Behind a public part
    the chain of keys goes on from the namespace and the last public key::

        page:     | public, public | own, own ...
        key of what is before:  public root ──►     gate_key = H(namespace root, key of the last public page) ──►

    Args:
        ids: token ids, each from 0 to 2**32 - 1.
        page_size: tokens a page.
        root: the namespace root (``hashing.namespace_root``).
        public: its public beginning, where it has one.
    """

    __slots__ = ("_ids", "_keys", "num_public", "page_size", "root", "top", "trail")

    def __init__(self, ids: Iterable[int], page_size: int, root: bytes, public: PublicPart | None = None) -> None:
        self._ids = array("I", ids)
        self._keys: list[bytes] = []
        self.page_size = page_size
        self.root = root
        self.top, self.num_public = (root, 0) if public is None or not public.pages else public
        """Root that the first page is keyed under; how many pages are public."""
        self.trail: Trail | None = None

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

    def ids(self, start: int, stop: int) -> array[int]:
        """A copy of ids ``[start, stop)``, four bytes each: numpy and torch take it as it is."""
        return self._ids[start:stop]

    def append(self, token: int) -> None:
        self._ids.append(token)

    def extend(self, ids: Iterable[int]) -> None:
        self._ids.extend(ids)

    def copy(self) -> PagedTokens:
        """An independent copy that keeps the keys computed so far."""
        return self.continued(self._ids)

    def continued(self, ids: array[int]) -> PagedTokens:
        """Those of ``ids``, which may begin like these: then what is known of the common beginning is kept.

        Compares the tokens, O(len(ids)) at memory speed.
        """
        twin = PagedTokens((), self.page_size, self.root, PublicPart(self.top, self.num_public))
        twin._ids = ids[:]
        common = common_pages(self._ids, ids, self.page_size)
        twin._keys = self._keys[:common]
        if self.trail is not None:
            pages = self.trail.pages
            whole = len(pages) <= common
            twin.trail = self.trail if whole else Trail(self.trail.key, self.trail.serial, pages[:common])
        return twin

    @property
    def gate_key(self) -> bytes:
        """What the first page behind the public part is keyed under."""
        return namespace_root("gate", self.root, self.key(self.num_public - 1))

    def parent_key(self, page: int) -> bytes:
        """Key of what stands before ``page``."""
        if page == 0:
            return self.top
        return self.gate_key if page == self.num_public else self.key(page - 1)

    @property
    def num_known(self) -> int:
        """Leading tokens whose keys are known."""
        return len(self._keys) * self.page_size

    @property
    def num_full_pages(self) -> int:
        return len(self._ids) // self.page_size

    def packed(self, start: int = 0) -> bytes:
        """Ids from ``start`` on, 4 bytes little-endian each; page i is bytes [i * page_size * 4, (i + 1) * page_size * 4)."""
        ids = self._ids[start:] if start or sys.byteorder == "big" else self._ids
        if sys.byteorder == "big":
            ids.byteswap()
        return ids.tobytes()

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
            keys.append(page_digest(self.parent_key(done) + self.page_bytes(done)))
            return keys
        width = self.page_size * TOKEN_BYTES
        data = self.packed(done * self.page_size)
        if done < self.num_public < count:
            self.keys(self.num_public)
            data, done = data[(self.num_public - done) * width :], self.num_public
        parent = self.parent_key(done)
        for start in range(0, (count - done) * width, width):
            parent = page_digest(parent + data[start : start + width])
            keys.append(parent)
        return keys

    def key(self, page: int) -> bytes:
        return self.keys(page + 1)[page]
