"""A folder that several processes, on one machine or several, keep pages in: needs nothing but a file system.

It asks little of the file system, so that a network one will do: a rename replaces a file whole, a link fails where a name
exists.  Nothing is locked.  A call blocks for as long as the file system does: between two files it looks at its deadline, but
nothing ends a read on a mount whose server hangs.  So it is called on threads that may be lost to it for a while.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentcache.cache.tiers import TierStats
from agentcache.store.base import Record, StoreItem, StoreUnavailableError
from agentcache.store.calls import Counts, Deadline
from agentcache.store.folder_files import FULL, Files, file_name, read_whole
from agentcache.store.folder_records import FolderRecords
from agentcache.store.folder_sweep import Sweeper

DEFAULT_CAPACITY = 8 * 2**30

_FRESH_S = 10.0
"""A page that was used so short a time ago need not be marked as used again."""


class FolderStore:
    """Pages and records below ``folder``; files are made for their owner only (0600 in folders of 0700).

    Args:
        folder: need not be there yet; ``prepare`` makes it.
        capacity: bytes of pages that all who use the folder may keep in it together; the least recently used ones go.  Processes
            that are told different capacities keep the smallest.
    """

    def __init__(self, folder: Path, capacity: int = DEFAULT_CAPACITY) -> None:
        self.folder = folder.absolute()
        self.name = self.folder.as_uri()
        self._counts = Counts()
        self._files = Files(self.folder)
        self._sweeper = Sweeper(self._files, capacity, self._counts)
        self._records = FolderRecords(self._files, self._counts)

    def __repr__(self) -> str:
        return f"FolderStore({self.name})"

    def prepare(self) -> None:
        """Make the folder.  Only whoever starts does so: one that vanishes later may be a file system that is not mounted.

        Raises:
            OSError: it cannot be made.
        """
        try:
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError:
            self._counts.add("failed")
            raise

    def ping(self, timeout_s: float) -> None:
        with self._told(), self._files.written((b"ping",)) as path:
            if read_whole(path) != b"ping":
                raise StoreUnavailableError("what was written to it did not come back")

    def stats(self) -> TierStats:
        pages, used = self._sweeper.estimate
        return TierStats("folder", pages, used, self._sweeper.capacity, "bytes", self._counts.told())

    def close(self) -> None:
        """Nothing is open between calls."""

    # -- pages ----------------------------------------------------------------------------------------------------

    def batch_exists(self, keys: Sequence[bytes], timeout_s: float) -> int:
        deadline = Deadline(timeout_s)
        held = 0
        with self._told():
            for key in keys:
                if deadline.passed or not self._use(self._path(key)):
                    break
                held += 1
            if not held:
                self._require_folder()
        return held

    def batch_get(self, keys: Sequence[bytes], timeout_s: float) -> list[bytes | None]:
        deadline = Deadline(timeout_s)
        values: list[bytes | None] = []
        with self._told():
            for key in keys:
                if deadline.passed:
                    break
                try:
                    values.append(read_whole(self._path(key)))
                except OSError:
                    if all(value is None for value in values):
                        raise
                    break
            found = [key for key, value in zip(keys, values, strict=False) if value is not None]
            if keys and not values:
                raise StoreUnavailableError(f"no page was read within {timeout_s:g} s")
            if not found:
                self._require_folder()
            # The first one last: what is used last leaves last, and the beginning of a chain must outlive its end.
            for key in reversed(found):
                self._use(self._path(key))
        return self._counts.came(values, len(keys))

    def batch_set(self, items: Sequence[StoreItem], timeout_s: float) -> set[bytes]:
        deadline = Deadline(timeout_s)
        taken: set[bytes] = set()
        with self._told():
            for done, item in enumerate(items):
                if deadline.passed:
                    self._counts.add("late", len(items) - done)
                    raise StoreUnavailableError(f"{done} of {len(items)} pages were written within {timeout_s:g} s")
                if self._set(item, deadline):
                    taken.add(item.key)
        return taken

    def _set(self, item: StoreItem, deadline: Deadline) -> bool:
        """Whether there was room for it."""
        target = self._path(item.key)
        try:
            with self._files.written((item.value,)) as path:
                try:
                    path.replace(target)
                except FileNotFoundError:
                    self._files.make(target.parent)
                    path.replace(target)
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._counts.add("full")
            self._sweeper.full()
            self._sweeper.wrote(0, deadline)
            return False
        self._counts.add("written")
        self._sweeper.wrote(len(item.value), deadline)
        return True

    def _path(self, key: bytes) -> Path:
        name = file_name(key)
        return self._files.pages / name[:2] / name

    def _use(self, path: Path) -> bool:
        """Mark a page as used; whether it is there."""
        try:
            if abs(time.time() - path.stat().st_mtime) > _FRESH_S:
                os.utime(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    # -- records --------------------------------------------------------------------------------------------------

    def load(self, key: bytes, timeout_s: float) -> Record | None:
        with self._told():
            record = self._records.load(key)
            if record is None:
                self._require_folder()
            return record

    def save(self, key: bytes, value: bytes, expected: int, ttl_s: float, timeout_s: float) -> bool:
        with self._told():
            return self._records.save(key, value, expected, ttl_s, Deadline(timeout_s))

    def delete(self, key: bytes, timeout_s: float) -> None:
        with self._told():
            self._records.delete(key, Deadline(timeout_s))

    # -- errors ---------------------------------------------------------------------------------------------------

    def _require_folder(self) -> None:
        """An empty folder is one thing, a missing one another."""
        if not self.folder.is_dir():
            raise self._files.gone()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, StoreUnavailableError) as error:
            self._counts.add("failed")
            said = error.strerror if isinstance(error, OSError) else str(error)
            raise StoreUnavailableError(f"{self.name}: {said or type(error).__name__}") from None
