"""The disk tier: one file a page, checksummed, written behind, bounded, and safe to kill at any moment.

::

    <folder>/<first byte of the key in hex>/<key in hex>.page

    file:   magic (8) | header length (4, little-endian) | header (JSON) | keys and values
    header: key, parent, tokens (hex), fingerprint, length and checksum (xxh3-128) of what follows

A file is written under another name and renamed, so it is there whole or not at all; the checksum covers what the file system
loses in a crash.  A file that is torn, of another model, or altered is counted, removed and never served.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path

from xxhash import xxh3_128_hexdigest

from agentcache.cache.residency import Listener, PageArrived, PageLeft
from agentcache.cache.tiers import StoredPage, TierStats
from agentcache.errors import SettingsError
from agentcache.faults import Faults

logger = logging.getLogger(__name__)

_MAGIC = b"ACPAGE1\n"
_SUFFIX = ".page"
_QUEUE = 256
"""Pages that may wait to be written; the oldest one waiting is dropped when more come."""


class DiskTier:
    """Pages in files, at most ``capacity`` bytes of them.

    ``get`` reads on the caller's thread; ``put`` hands over to a writer thread and returns at once.

    Args:
        fingerprint: of everything that the bytes depend on beside their key (shape and type of the numbers).
        faults: where tests make writing fail.

    Raises:
        SettingsError: the folder cannot be made or written to.
    """

    name = "disk"
    durable = True

    def __init__(self, folder: Path, capacity: int, fingerprint: str, faults: Faults | None = None) -> None:
        self.folder = folder
        self.capacity = capacity
        self.listener: Listener | None = None
        self.counts: Counter[str] = Counter()
        """``written``, ``read``, ``dropped`` (the writer fell behind), ``failed`` (to write), ``rejected`` (bad files)."""
        self._fingerprint = fingerprint
        self._faults = faults or Faults()
        self._lock = threading.Lock()
        self._sizes: OrderedDict[bytes, int] = OrderedDict()
        self._bytes = 0
        self._waiting: OrderedDict[bytes, StoredPage] = OrderedDict()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._scan()
        except OSError as error:
            raise SettingsError(f"--disk-dir {folder}: {error.strerror or error}") from None
        self._thread = threading.Thread(target=self._write_all, name="agentcache-disk", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._sizes)

    def stats(self) -> TierStats:
        return TierStats(self.name, len(self), self._bytes, self.capacity, "bytes", dict(self.counts))

    def __contains__(self, key: bytes) -> bool:
        with self._lock:
            return key in self._sizes or key in self._waiting

    def lacks(self, key: bytes) -> bool:
        return key not in self

    def touch(self, key: bytes) -> None:
        with self._lock:
            if key in self._sizes:
                self._sizes.move_to_end(key)

    def seen(self, page: PageArrived) -> None:
        with self._lock:
            if self.listener is not None and page.key in self._sizes:
                self.listener(page._replace(tier=self.name))

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, key: bytes, parent: bytes, tokens: bytes) -> StoredPage | None:
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting is not None:
                return waiting if waiting.follows(parent, tokens) else None
            if key not in self._sizes:
                return None
        try:
            page = self._read(self._path(key))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._reject(key, str(error))
            return None
        if (page.key, page.parent, page.tokens) != (key, parent, tokens):
            self._reject(key, "it holds other tokens")
            return None
        self.counts["read"] += 1
        return page

    def _read(self, path: Path) -> StoredPage:
        """
        Raises:
            OSError, ValueError, KeyError, TypeError: the file cannot be read, or is not a whole page of this engine.
        """
        raw = path.read_bytes()
        start = len(_MAGIC) + 4
        if raw[: len(_MAGIC)] != _MAGIC or len(raw) < start:
            raise ValueError("it is not a page file")
        end = start + int.from_bytes(raw[len(_MAGIC) : start], "little")
        header = json.loads(raw[start:end])
        data = memoryview(raw)[end:]
        if header["fingerprint"] != self._fingerprint:
            raise ValueError("it belongs to another model or type of numbers")
        if len(data) != header["length"] or xxh3_128_hexdigest(data) != header["checksum"]:
            raise ValueError("it is torn or altered")
        key, parent, tokens = (bytes.fromhex(header[name]) for name in ("key", "parent", "tokens"))
        return StoredPage(key, parent, tokens, data)

    def _reject(self, key: bytes, why: str) -> None:
        logger.warning("page file %s is ignored and removed: %s", self._path(key), why)
        self.counts["rejected"] += 1
        self._forget(key)

    def _forget(self, key: bytes) -> None:
        with self._lock:
            size = self._sizes.pop(key, 0)
            self._bytes -= size
            if size and self.listener is not None:
                self.listener(PageLeft(key, self.name))
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    # -- writing --------------------------------------------------------------------------------------------------

    def put(self, page: StoredPage) -> None:
        with self._lock:
            if page.key in self._sizes:
                return
            self._waiting[page.key] = page
            if len(self._waiting) > _QUEUE:
                self._waiting.popitem(last=False)
                self.counts["dropped"] += 1
        self._work.put(self._write_next)

    def close(self, timeout_s: float) -> None:
        """Write what is owed, for at most ``timeout_s`` seconds."""
        self._work.put(None)
        self._thread.join(timeout_s)

    @property
    def has_room(self) -> bool:
        return len(self._waiting) <= _QUEUE // 2

    def catch_up(self, deadline: float) -> bool:
        while not self.has_room:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.002)
        return time.monotonic() < deadline

    def wait(self, timeout_s: float = 30) -> bool:
        """Until everything put so far is written; whether it was in time."""
        done = threading.Event()
        self._work.put(done.set)
        return done.wait(timeout_s)

    def _write_all(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _write_next(self) -> None:
        with self._lock:
            if not self._waiting:
                return
            page = next(iter(self._waiting.values()))
        size = 0
        try:
            self._faults.trip("disk_write")
            size = self._write(page)
            self.counts["written"] += 1
        except Exception as error:  # noqa: BLE001  a page that cannot be written is a page that is not cached
            self.counts["failed"] += 1
            logger.warning("a page could not be written to %s: %s", self.folder, error)
        with self._lock:
            self._waiting.pop(page.key, None)
            if size:
                self._sizes[page.key] = size
                self._bytes += size
                if self.listener is not None and page.root:
                    self.listener(page.arrived(self.name))
        self._shrink()

    def _write(self, page: StoredPage) -> int:
        page.whole()
        header = {
            "key": page.key.hex(),
            "parent": page.parent.hex(),
            "tokens": page.tokens.hex(),
            "fingerprint": self._fingerprint,
            "length": len(page.data),
            "checksum": xxh3_128_hexdigest(page.data),
        }
        encoded = json.dumps(header).encode()
        path = self._path(page.key)
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        with partial.open("wb") as file:
            file.write(_MAGIC + len(encoded).to_bytes(4, "little") + encoded)
            file.write(page.data)
        partial.replace(path)
        return path.stat().st_size

    def _shrink(self) -> None:
        while True:
            with self._lock:
                if self._bytes <= self.capacity or not self._sizes:
                    return
                oldest = next(iter(self._sizes))
            self._forget(oldest)

    # -- the folder -----------------------------------------------------------------------------------------------

    def _path(self, key: bytes) -> Path:
        name = key.hex()
        return self.folder / name[:2] / (name + _SUFFIX)

    def _scan(self) -> None:
        """Learn what an earlier run left, oldest first; half-written files go."""
        found: list[tuple[int, bytes, int]] = []
        for path in self.folder.glob("??/*"):
            if path.suffix == ".partial":
                _remove_abandoned(path)
            elif path.suffix == _SUFFIX:
                try:
                    found.append((path.stat().st_mtime_ns, bytes.fromhex(path.stem), path.stat().st_size))
                except (ValueError, OSError):
                    self.counts["rejected"] += 1
        for _, key, size in sorted(found):
            self._sizes[key] = size
            self._bytes += size
        self._shrink()


def _remove_abandoned(partial: Path) -> None:
    """Remove a half-written file, unless the process that writes it is alive (another server on the same folder)."""
    try:
        os.kill(int(partial.suffixes[-2].lstrip(".")), 0)
    except (ValueError, IndexError, ProcessLookupError):
        partial.unlink(missing_ok=True)
    except OSError:  # it runs as somebody else
        return
