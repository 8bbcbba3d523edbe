"""Beginnings that the operator declared to be public: their pages are shared by every namespace."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from agentcache.cache.tokens import PagedTokens, PublicPart, common_pages


class PublicPrefixes:
    """Token sequences that every namespace may share, in whole pages.

    ::

        public    | page | page | page | p p p
        prompt    | page | page | page | p p p own own | own ...       its first three pages are public

    Args:
        root: key under which they are kept (``hashing.namespace_root`` of the model and of nobody's key).
        prefixes: token ids of each.
    """

    def __init__(self, root: bytes, page_size: int, prefixes: Iterable[Sequence[int]] = ()) -> None:
        self.root = root
        self._page_size = page_size
        self._prefixes = [array("I", prefix) for prefix in prefixes]

    def __len__(self) -> int:
        return len(self._prefixes)

    def part_of(self, ids: array[int]) -> PublicPart | None:
        """The public part of a sequence that begins like ``ids``."""
        pages = max((common_pages(prefix, ids, self._page_size) for prefix in self._prefixes), default=0)
        return PublicPart(self.root, pages) if pages else None

    def paged(self, ids: Sequence[int], root: bytes, known: PagedTokens | None = None) -> PagedTokens:
        """``ids`` in pages under the namespace ``root``, with what is ``known`` of their beginning."""
        owned = ids if isinstance(ids, array) else array("I", ids)
        public = self.part_of(owned)
        if known is not None and (known.root, known.num_public) == (root, public.pages if public else 0):
            return known.continued(owned)
        return PagedTokens(owned, self._page_size, root, public)
