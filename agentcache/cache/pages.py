"""The pool of fixed pages: a free list and a reference count a page.

Numbers only: the keys and values themselves live in the model's ``KVStore`` under the same page numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentcache.errors import InvariantError


@dataclass(frozen=True, slots=True)
class PageCopy:
    """Copy the first ``tokens`` slots of page ``source`` into page ``target``, in every layer, keys and values."""

    source: int
    target: int
    tokens: int


@dataclass(frozen=True, slots=True)
class PageLoad:
    """Fill page ``target`` with stored ``data`` (``PageIO.read_page``'s), before the copies of the step."""

    target: int
    data: memoryview | bytes | bytearray


class PagePool:
    """``num_pages`` pages, each free or held.

    A page's count is the number of its holders: every lease that lists it as its own, plus one if the prefix tree has it.
    A page with more than one holder is never written.

    Pages are handed out from a stack, so a page that was just given back is the first to be reused (its memory is warm),
    and a fresh pool hands out 0, 1, 2, … (neighbours in memory).
    """

    __slots__ = ("_free", "_refs", "num_pages")

    def __init__(self, num_pages: int) -> None:
        if num_pages < 1:
            raise ValueError(f"a pool needs at least one page, got {num_pages}")
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))
        self._refs = [0] * num_pages

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self) -> int:
        """A free page, held once.

        Raises:
            IndexError: no page is free; callers make room first.
        """
        page = self._free.pop()
        self._refs[page] = 1
        return page

    def share(self, page: int) -> None:
        """One more holder of a held page."""
        if self._refs[page] < 1:
            raise InvariantError(f"page {page} is free and cannot be shared")
        self._refs[page] += 1

    def drop(self, page: int) -> None:
        """One holder less; the last one frees the page."""
        refs = self._refs[page] - 1
        if refs < 0:
            raise InvariantError(f"page {page} was freed twice")
        self._refs[page] = refs
        if refs == 0:
            self._free.append(page)

    def refs(self, page: int) -> int:
        return self._refs[page]

    def check(self) -> list[str]:
        """What is broken, in sentences; empty when all is well."""
        faults = []
        if len(set(self._free)) != len(self._free):
            faults.append("a page is in the free list twice")
        faults += [f"page {page} is free but has {self._refs[page]} holders" for page in self._free if self._refs[page]]
        held = sum(1 for refs in self._refs if refs)
        if held + len(self._free) != self.num_pages:
            faults.append(f"{held} held + {len(self._free)} free pages are not {self.num_pages}")
        if any(refs < 0 for refs in self._refs):
            faults.append("a page has a negative count")
        return faults
