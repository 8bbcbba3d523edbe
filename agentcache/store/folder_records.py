"""Records of a shared folder: compare-and-set between processes and machines, without locks.

::

    records/3f/3fa9.../ 7    version 4      kept for a while
                        8    version 5      kept for a while
                        9    version 6      the highest number is the record as it is

A version is written whole under another name and then *linked* to the next number, which fails if that number exists; so of two
that write at once, one has written and the other knows that it has not.  A number is never used again: what ends a record is a
version that says so.  What was written before stays some minutes, for those whose view of the folder is old (network file
systems remember listings for up to a minute).
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path
from typing import NamedTuple

from agentcache.store.base import Record, StoreUnavailableError
from agentcache.store.calls import Counts, Deadline
from agentcache.store.folder_files import SHARDS, Files, file_name, listed, read_whole, shard_name
from agentcache.store.records import expired, pack_record, unpack_record

_KEPT_S = 180
"""Seconds for which a version stays after a newer one; longer than network file systems remember a listing."""

_ENDED_S = 3600
_SWEPT = 8
"""Records that are looked at for their age with each one written."""

_ENDED = 0
"""Version of a record that says that there is none."""


class _Current(NamedTuple):
    number: int
    """0: nothing was ever written."""
    version: int
    value: bytes


class FolderRecords:
    """
    Args:
        counts: gets ``damaged``.
    """

    def __init__(self, files: Files, counts: Counts) -> None:
        self._files = files
        self._counts = counts

    def load(self, key: bytes) -> Record | None:
        """
        Raises:
            OSError: the folder cannot be read.
        """
        current = self._current(key)
        return None if current.version == _ENDED else Record(current.version, current.value)

    def save(self, key: bytes, value: bytes, expected: int, ttl_s: float, deadline: Deadline) -> bool:
        """
        Raises:
            OSError: the folder cannot be written to.
            StoreUnavailableError: it is gone, or it took too long; nothing was written.
        """
        current = self._current(key)
        if current.version != expected:
            return False
        if not self._link(key, pack_record(key, expected + 1, value, ttl_s), current.number, deadline):
            return False
        self._sweep()
        return True

    def delete(self, key: bytes, deadline: Deadline) -> None:
        """Raises as ``save`` does."""
        folder = self._folder(key)
        while (current := self._current(key)).version != _ENDED:
            if self._link(key, pack_record(key, _ENDED, b"", _ENDED_S), current.number, deadline):
                for number in _numbers(folder):  # the names stay, as after each write, but not what was written
                    if number <= current.number:
                        with contextlib.suppress(OSError):
                            os.truncate(folder / str(number), 0)
                return

    # -- versions -------------------------------------------------------------------------------------------------

    def _folder(self, key: bytes) -> Path:
        name = file_name(key)
        return self._files.records / name[:2] / name

    def _current(self, key: bytes) -> _Current:
        folder = self._folder(key)
        for number in sorted(_numbers(folder), reverse=True):
            packed = read_whole(folder / str(number))
            if packed is None:  # swept in this moment, with all before it
                continue
            record = unpack_record(packed, key)
            if record is None:
                self._counts.add("damaged")
            if record is None or expired(packed, time.time()):
                return _Current(number, _ENDED, b"")
            return _Current(number, record.version, record.value)
        return _Current(0, _ENDED, b"")

    def _link(self, key: bytes, packed: bytes, after: int, deadline: Deadline) -> bool:
        """Write what follows number ``after``; whether nobody else had."""
        folder = self._folder(key)
        target = folder / str(after + 1)
        with self._files.written((packed,), durable=True) as path:
            if deadline.passed:
                raise StoreUnavailableError("writing a record took too long")
            try:
                self._link_below(path, target)
            except FileExistsError:
                # A network file system that repeats a call whose answer was lost says so although it is our own link.
                if path.stat().st_nlink != 2:
                    return False
        numbers = _numbers(folder)
        if after and after not in numbers:  # it was listed long ago: others have gone on, and cleared away
            target.unlink(missing_ok=True)
            return False
        self._clear(folder, [number for number in numbers if number < after])
        return True

    def _link_below(self, path: Path, target: Path) -> None:
        """Raises ``FileExistsError`` where somebody else was faster, also at making the folder."""
        try:
            os.link(path, target)
        except FileNotFoundError:
            self._files.make(target.parent)
            os.link(path, target)

    def _clear(self, folder: Path, numbers: list[int]) -> None:
        before = time.time() - _KEPT_S
        with contextlib.suppress(OSError):
            for number in sorted(numbers):
                if (folder / str(number)).stat().st_mtime >= before:  # and so are those after it
                    return
                (folder / str(number)).unlink()

    # -- what nobody asks for any more ----------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Remove some of the records whose time is over."""
        shard = self._files.records / shard_name(random.randrange(SHARDS))
        folders = [Path(path) for path, _ in listed(shard)]
        for folder in random.sample(folders, min(_SWEPT, len(folders))):
            numbers = sorted(_numbers(folder))
            with contextlib.suppress(OSError):
                if numbers and expired(read_whole(folder / str(numbers[-1])) or b"", time.time() - _KEPT_S):
                    for number in numbers:
                        (folder / str(number)).unlink(missing_ok=True)
                    folder.rmdir()


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdecimal()]
    except (FileNotFoundError, NotADirectoryError):
        return []
