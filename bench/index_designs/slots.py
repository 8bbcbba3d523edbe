"""A few slots, each remembering one token list; a prompt goes to the slot with the longest common beginning.

This is the design of llama.cpp's server (``tools/server``: slots, slot similarity, least recently used slot otherwise).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable

from agentcache.cache.hashing import TOKEN_BYTES
from agentcache.cache.tokens import PagedTokens
from bench.index_designs.interface import Found, common_units


class Slot:
    """One remembered sequence: its tokens (packed ids) and the pages that hold them."""

    __slots__ = ("pages", "pins", "root", "tokens")

    def __init__(self, root: bytes, tokens: bytes, pages: list[int]) -> None:
        self.root = root
        self.tokens = tokens
        self.pages = pages
        self.pins = 0


class Slots:
    """Token by token, no hashes, no tree: a lookup compares the prompt with every slot.

    Two kindnesses, so that the comparison is about the index and not about lost matches: there are as many slots as are
    needed (the field has a fixed, small number), and a prompt that parts from the slot it matched gets a slot of its own,
    which shares the common pages (the field overwrites what follows, or copies the whole sequence).
    """

    name = "slots"
    field_use = "llama.cpp"

    def __init__(self, page_size: int) -> None:
        self._size = page_size
        self._slots: OrderedDict[Slot, None] = OrderedDict()
        """Least recently used first."""
        self._holders: Counter[int] = Counter()
        """Slots that hold a page."""

    def __len__(self) -> int:
        return len(self._holders)

    def lookup(self, tokens: PagedTokens) -> Found[Slot | None]:
        data, root = tokens.packed(), tokens.root
        best: Slot | None = None
        most = 0
        for slot in self._slots:
            # A slot that is longer by one token than the best so far must agree so far; most fail at this comparison.
            longer = most + TOKEN_BYTES
            if slot.root == root and len(slot.tokens) >= longer and slot.tokens[:longer] == data[:longer]:
                best, most = slot, common_units(slot.tokens, data, TOKEN_BYTES, longer) * TOKEN_BYTES
        if best is None:
            return Found(0, [], None)
        count = most // TOKEN_BYTES
        return Found(count, best.pages[: count // self._size], best)

    def pin(self, found: Found[Slot | None]) -> None:
        if found.at is not None:
            found.at.pins += 1

    def unpin(self, found: Found[Slot | None]) -> None:
        if found.at is not None:
            found.at.pins -= 1
            self._slots.move_to_end(found.at)

    def publish(self, found: Found[Slot | None], tokens: PagedTokens, pages: Iterable[int]) -> Found[Slot | None]:
        data = tokens.packed()
        data = data[: tokens.num_full_pages * self._size * TOKEN_BYTES]
        fresh, slot = list(pages), found.at
        if not fresh:
            return found
        self._holders.update(fresh)
        if slot is not None and len(slot.pages) == len(found.pages):
            slot.tokens = data
            slot.pages += fresh
        else:  # the slot goes on differently
            self._holders.update(found.pages)
            slot = Slot(tokens.root, data, found.pages + fresh)
            slot.pins = 1
            self._slots[slot] = None
            if found.at is not None:
                found.at.pins -= 1
        return Found(len(slot.pages) * self._size, slot.pages.copy(), slot)

    def evict(self, count: int) -> list[int]:
        pages: list[int] = []
        while len(pages) < count and (slot := next((s for s in self._slots if not s.pins), None)) is not None:
            del self._slots[slot]
            for page in slot.pages:
                self._holders[page] -= 1
                if not self._holders[page]:
                    del self._holders[page]
                    pages.append(page)
        return pages
