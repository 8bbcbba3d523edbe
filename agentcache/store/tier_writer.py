"""Pages on their way to the store: a bounded line, and batches from it.

::

    evicted, used again, shutdown ──► waiting (oldest dropped when it is full) ──► batch ──► which are there? ──► batch_set
                                                                                     └ the end of a chain first: stores forget
                                                                                       what was used longest ago
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence

from agentcache.cache.tiers import StoredPage
from agentcache.store.base import StoreItem, StoreUnavailableError
from agentcache.store.codec import StoreKeys, pack_page
from agentcache.store.tier_known import KnownKeys
from agentcache.store.tier_link import StoreLink

logger = logging.getLogger(__name__)

_BATCH_PAGES = 64
_BATCH_BYTES = 16 * 2**20
_WRITE_S = 10.0
"""Nobody waits for a write, so it may take its time."""


class StoreWriter:
    """Takes pages at once and writes them behind.  One thread calls ``write_next``; ``put`` may come from any.

    Args:
        capacity: bytes that may wait.
    """

    def __init__(self, link: StoreLink, names: StoreKeys, known: KnownKeys, capacity: int) -> None:
        self.capacity = capacity
        self.bytes = 0
        """That wait or are being written."""
        self.pages: Counter[str] = Counter()
        self.sizes: Counter[str] = Counter()
        """``written``, ``there`` (another server had written them), ``full`` (the store had no room for them), ``dropped`` (it
        fell behind) and ``failed``, in pages and in bytes."""
        self.refills = 0
        """How often the store took pages again after it had been full."""
        self._was_full = False
        self._link = link
        self._names = names
        self._known = known
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._waiting: OrderedDict[bytes, StoredPage] = OrderedDict()
        self._writing: dict[bytes, StoredPage] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._writing)

    def __contains__(self, key: bytes) -> bool:
        return key in self._waiting or key in self._writing

    def get(self, key: bytes) -> StoredPage | None:
        with self._lock:
            return self._waiting.get(key) or self._writing.get(key)

    def put(self, page: StoredPage) -> None:
        with self._lock:
            if page.key in self:
                return
            self._waiting[page.key] = page
            self.bytes += len(page.data)
            while self.bytes > self.capacity and self._waiting:
                _, oldest = self._waiting.popitem(last=False)
                self._leave([oldest], "dropped")
            self._came.notify()

    def _leave(self, pages: Sequence[StoredPage], how: str) -> None:
        size = sum(len(page.data) for page in pages)
        self.bytes -= size
        self.pages[how] += len(pages)
        self.sizes[how] += size

    def wait(self, timeout_s: float) -> None:
        """Until there is something to write, or the time is over, or ``nudge``."""
        with self._lock:
            if not self._waiting:
                self._came.wait(timeout_s)

    def nudge(self) -> None:
        with self._lock:
            self._came.notify_all()

    def write_next(self) -> bool:
        """Write what came first, as much of it as one call should carry; whether there was anything."""
        with self._lock:
            batch = self._next_batch()
            self._writing = {page.key: page for page in batch}
        if not batch:
            return False
        became: Mapping[str, Sequence[StoredPage]] = {"failed": batch}
        try:
            became = self._write(batch)
        except StoreUnavailableError as error:
            logger.debug("%d pages were not written: %s", len(batch), error)
        except Exception:
            logger.exception("%d pages were not written to %s", len(batch), self._link.store.name)
        else:
            self._note(became)
        with self._lock:
            for how, pages in became.items():
                self._leave(pages, how)
            self._writing = {}
        return True

    def _note(self, became: Mapping[str, Sequence[StoredPage]]) -> None:
        self._known.wrote(page.key for how in ("written", "there") for page in became[how])
        if became["full"]:
            self._was_full = True
        elif became["written"] and self._was_full:
            self._was_full = False
            self.refills += 1

    def _next_batch(self) -> list[StoredPage]:
        batch: list[StoredPage] = []
        size = 0
        while self._waiting and len(batch) < _BATCH_PAGES:
            page = next(iter(self._waiting.values()))
            size += len(page.data)
            if batch and size > _BATCH_BYTES:
                break
            del self._waiting[page.key]
            batch.append(page)
        return batch

    def _write(self, batch: Sequence[StoredPage]) -> dict[str, list[StoredPage]]:
        """What became of each, as in ``pages``.

        Raises:
            StoreUnavailableError
        """
        new: list[StoredPage] = []
        for chain in chains(batch):
            there = self._link.exists([self._names.key(page.key) for page in chain], _WRITE_S)
            new += reversed([page for at, page in enumerate(chain) if at >= there or self._known.is_bad(page.key)])
        items = [StoreItem(self._names.key(page.key), pack_page(page, self._names.fingerprint)) for page in new]
        taken = self._link.set(items, _WRITE_S) if items else set()
        keys = {page.key for page in new}
        became: dict[str, list[StoredPage]] = {
            "written": [],
            "full": [],
            "there": [page for page in batch if page.key not in keys],
        }
        for page, item in zip(new, items, strict=True):
            became["written" if item.key in taken else "full"].append(page)
        return became

    def empty_by(self, deadline: float, most_bytes: int = 0) -> bool:
        """Wait until no more than ``most_bytes`` are owed; whether that was before ``deadline`` (``time.monotonic``)."""
        while self.bytes > most_bytes:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.002)
        return time.monotonic() < deadline

    def check(self) -> list[str]:
        """What is broken, in sentences."""
        with self._lock:
            held = sum(len(page.data) for page in (*self._waiting.values(), *self._writing.values()))
            if held != self.bytes:
                return [f"{held} bytes wait to be written, the count says {self.bytes}"]
        return []


def chains(pages: Sequence[StoredPage]) -> list[list[StoredPage]]:
    """``pages`` in runs in which each follows the one before it; the beginning of a chain comes first."""
    by_key = {page.key: page for page in pages}
    children: dict[bytes, list[StoredPage]] = {}
    for page in pages:
        children.setdefault(page.parent, []).append(page)
    runs: list[list[StoredPage]] = []
    starts = [page for page in pages if page.parent not in by_key]
    while starts:
        run = [starts.pop()]
        while following := children.get(run[-1].key):
            run.append(following[0])
            starts += following[1:]
        runs.append(run)
    return runs
