"""Where sessions go through the tree, and which of their pages only a lower tier still has.

::

    run ── run ── run                  device
                   └ ─ page ─ page     evicted, and known from a session's transcript to be on the host or the disk
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agentcache.cache.tokens import PagedTokens
from agentcache.server.ui.tree_json import Box

if TYPE_CHECKING:
    from agentcache.cache.tiers import Tier


class Trails:
    """Follows transcripts through ``boxes`` and notes on each which sessions go through it."""

    def __init__(self, boxes: Sequence[Box], tiers: Sequence[Tier], page_size: int) -> None:
        self._tiers = tiers
        self._page_size = page_size
        self._at = {(box.namespace, box.key): box for box in boxes}
        self._below: dict[tuple[int, bytes], Box] = {}

    def follow(self, session_id: str, tokens: PagedTokens, namespace: int) -> None:
        """Note a session along its way, and what lower tiers have of it behind the last page on the device."""
        keys = tokens.keys(tokens.num_full_pages)[: tokens.num_full_pages]
        page, box = tokens.num_public, None
        while page < len(keys) and (found := self._at.get((namespace, keys[page]))) is not None:
            box = found
            box.sessions.append(session_id)
            assert box.run is not None, "only pages on the device are looked up"
            same = _equal(box.run.keys, keys[page:])
            page += same
            if same < box.run.pages:
                break
        if box is not None and page == len(keys):
            rest = tokens.packed(page * self._page_size)
            for child in box.children:
                if child.run is not None and child.tokens < self._page_size and rest.startswith(child.head):
                    child.sessions.append(session_id)
        self._follow_below(session_id, tokens, page, namespace, box)

    def _follow_below(self, session_id: str, tokens: PagedTokens, page: int, namespace: int, above: Box | None) -> None:
        """Pages of one tier that follow each other are one box."""
        for index in range(page, tokens.num_full_pages):
            key = tokens.key(index)
            name = next((tier.name for tier in self._tiers if key in tier), None)
            if name is None:
                return
            known = self._below.get((namespace, key))
            if known is None:
                known = self._extended(above, name, session_id)
                if known is None:
                    start = index * self._page_size
                    known = Box(key, above, namespace, start, None, 0, 0, tokens.page_bytes(index), below=name)
                    if above is not None:
                        above.children.append(known)
                known.pages += 1
                known.tokens += self._page_size
                known.last = tokens.page_bytes(index)
                if 1 < known.pages <= 3:
                    known.head += known.last
                self._below[namespace, key] = known
            if not known.sessions or known.sessions[-1] != session_id:
                known.sessions.append(session_id)
            above = known

    def _extended(self, above: Box | None, name: str, session_id: str) -> Box | None:
        """The box that a page may be added to: of the same tier, made for the same session, with nothing behind it."""
        if above is None or above.below != name or above.children or above.sessions != [session_id]:
            return None
        return above

    def below(self) -> Iterator[Box]:
        """Boxes of pages that only lower tiers have, parents first."""
        seen: set[int] = set()
        for box in self._below.values():
            if id(box) not in seen:
                seen.add(id(box))
                yield box


def _equal(run: Sequence[bytes], keys: Sequence[bytes]) -> int:
    """How many pages both begin with.  A key stands for everything before it, so this halves."""
    low, high = 0, min(len(run), len(keys))
    while low < high:
        middle = (low + high + 1) // 2
        if run[middle - 1] == keys[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
