"""What pages a replica has, told to those who route requests to it.

A replica keeps the set of its pages and a ring of the last changes, and answers "what changed since …"::

    changes   … 37 38 39 40 41 42 43 44           since 40: the outcome of 41 to 44, each key once
                 └ the ring ─────── ┘             since 12: no longer in the ring, so everything, as of 44

A page counts as held while any tier has it, so moves between tiers tell nothing.  Keys alone are told: equal keys mean equal
beginnings, and nobody needs to know what stands before a page.

Whoever asks says which life of the replica its cursor is from, so a replica that came back is read from the beginning.  Every
answer is bounded; ``more`` says that the next one can be had at once.
"""

from __future__ import annotations

import secrets
import threading
from typing import NamedTuple

from agentcache.cache.residency import AllLeft, PageArrived, Residence
from agentcache.routing.loads import ReplicaLoad

KEY_BYTES = 16
"""Of a page's key (``cache.hashing``)."""
_TIERS = {"device": 1, "host": 2, "disk": 4}


class Cursor(NamedTuple):
    """How far a reader knows a replica.

    Attributes:
        epoch: which life of the replica.
        change: the last change known.
        part: keys of the complete set already read, while it is read in parts; 0 behind it.
    """

    epoch: int
    change: int
    part: int = 0


class FeedDelta(NamedTuple):
    """What became of a replica's pages between two cursors.

    Attributes:
        start: the cursor that this follows; with ``whole`` there is none.
        cursor: to ask with next.
        added, removed: keys, 16 bytes each, one after another.
        whole: forget what was known of this replica before ``added``.
        more: there is more to be told at once.
        load: what the replica is busy with, where it was asked.
    """

    start: Cursor | None
    cursor: Cursor
    added: bytes = b""
    removed: bytes = b""
    whole: bool = False
    more: bool = False
    load: ReplicaLoad | None = None


def split_keys(packed: bytes) -> list[bytes]:
    """The keys that ``FeedDelta`` carries one after another."""
    return [packed[start : start + KEY_BYTES] for start in range(0, len(packed), KEY_BYTES)]


class PageFeed:
    """Listens to a replica's cache and answers readers.  Every method may be called from any thread.

    Args:
        ring: changes that are kept; a reader that is further behind reads everything anew.  Some 40 bytes each.
        epoch: this life of the replica; drawn at random.
    """

    def __init__(self, ring: int = 65536, epoch: int | None = None) -> None:
        if ring < 1:
            raise ValueError(f"got a ring of {ring} changes, expected at least 1")
        self.epoch = secrets.randbits(62) if epoch is None else epoch
        self._size = ring
        self._ring: list[bytes] = []
        """Keys that changed, change number c at (c - 1) % size; whether one came or went is read off ``_held``."""
        self._change = 0
        self._held: dict[bytes, int] = {}
        self._image: tuple[int, bytes] | None = None
        """The complete set as of a change, kept while somebody may read on in it."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Pages held."""
        return len(self._held)

    @property
    def change(self) -> int:
        """Number of the last change."""
        return self._change

    def hear(self, residence: Residence) -> None:
        """One change, as ``cache.residency`` tells it.  A matter of a microsecond, but for a tier that empties."""
        with self._lock:
            if isinstance(residence, PageArrived):
                tiers = self._held.get(residence.key, 0)
                self._held[residence.key] = tiers | _tier(residence.tier)
                if not tiers:
                    self._changed(residence.key)
            elif isinstance(residence, AllLeft):
                tier = _tier(residence.tier)
                for key in [key for key, tiers in self._held.items() if tiers & tier]:
                    self._leave(key, tier)
            else:
                self._leave(residence.key, _tier(residence.tier))

    def _leave(self, key: bytes, tier: int) -> None:
        tiers = self._held.get(key, 0)
        if tiers & ~tier:
            self._held[key] = tiers & ~tier
        elif tiers:
            del self._held[key]
            self._changed(key)

    def _changed(self, key: bytes) -> None:
        if len(self._ring) < self._size:
            self._ring.append(key)
        else:
            self._ring[self._change % self._size] = key
        self._change += 1

    # -- readers ----------------------------------------------------------------------------------------------------

    def since(self, cursor: Cursor | None, limit: int = 16384, load: ReplicaLoad | None = None) -> FeedDelta:
        """What happened after ``cursor``; everything where that cannot be told.

        Args:
            limit: keys and changes in one answer at most.
        """
        with self._lock:
            if cursor is None or not self._follows(cursor):
                self._take_image()
                return self._part_of_image(None, 0, limit, load)
            if cursor.part:
                return self._part_of_image(cursor, cursor.part, limit, load)
            return self._changes(cursor, limit, load)

    def recent(self, cursor: Cursor | None, limit: int = 512, load: ReplicaLoad | None = None) -> FeedDelta | None:
        """The same for riding along with an answer: ``None`` where nothing is new, or it is more than a few changes."""
        with self._lock:
            if cursor is None or cursor.part or not self._follows(cursor) or self._change - cursor.change > limit:
                return None
            if cursor.change == self._change and load is None:
                return None
            return self._changes(cursor, limit, load)

    def _follows(self, cursor: Cursor) -> bool:
        """Whether what came after ``cursor`` is known.  The lock is held."""
        if cursor.epoch != self.epoch or not self._change - len(self._ring) <= cursor.change <= self._change:
            return False
        return not cursor.part or (self._image is not None and self._image[0] == cursor.change)

    def _take_image(self) -> None:
        """A complete set that the ring still follows on; readers that come at the same time share it."""
        if self._image is None or self._change - self._image[0] > self._size // 2:
            self._image = (self._change, b"".join(self._held))

    def _part_of_image(self, start: Cursor | None, first: int, limit: int, load: ReplicaLoad | None) -> FeedDelta:
        change, keys = self._image or (self._change, b"")
        stop = first + limit
        rest = stop * KEY_BYTES < len(keys)
        cursor = Cursor(self.epoch, change, stop if rest else 0)
        added = keys[first * KEY_BYTES : stop * KEY_BYTES]
        return FeedDelta(start, cursor, added, b"", start is None, rest or change < self._change, load)

    def _changes(self, cursor: Cursor, limit: int, load: ReplicaLoad | None) -> FeedDelta:
        stop = min(self._change, cursor.change + limit)
        ring = self._ring
        changed = dict.fromkeys(ring[change % self._size] for change in range(cursor.change, stop))
        # What a key became later is told now already; its later change will say the same.
        added = [key for key in changed if key in self._held]
        removed = [key for key in changed if key not in self._held]
        end = Cursor(self.epoch, stop)
        return FeedDelta(cursor, end, b"".join(added), b"".join(removed), False, stop < self._change, load)


def _tier(name: str) -> int:
    return _TIERS.get(name, 8)
