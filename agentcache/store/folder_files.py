"""Files of a shared folder: whole or not there, only for their owner, and never a reason to wait for another process."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentcache.store.base import StoreUnavailableError

SHARDS = 256
_LARGEST = 2**30
"""No page or record comes near it; a larger file is somebody else's."""

_ABANDONED_S = 3600
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def shard_name(shard: int) -> str:
    return f"{shard:02x}"


def file_name(key: bytes) -> str:
    """A name of 32 hexadecimal digits; the first two are its shard."""
    return hashlib.blake2b(key, digest_size=16).hexdigest()


class Files:
    """Below ``folder``, which is never made here: what is missing may be a file system that is not mounted.

    ::

        folder/incoming/<random>      being written; renamed or linked to where it belongs
        folder/pages/3f/3fa9...       ``SHARDS`` folders of pages
        folder/records/3f/3fa9.../    a folder a record, a file a version
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = folder / "pages"
        self.records = folder / "records"
        self.incoming = folder / "incoming"

    def make(self, path: Path) -> None:
        """Make a folder below ``folder``, and those between.

        Raises:
            StoreUnavailableError: ``folder`` is not there.
        """
        missing = [path, *(each for each in path.parents if self.folder in each.parents)]
        for each in reversed(missing):
            try:
                each.mkdir(0o700)
            except FileExistsError:
                pass
            except FileNotFoundError:
                raise self.gone() from None

    def gone(self) -> StoreUnavailableError:
        """That the folder itself is not there any more, or not yet: a file system that is not mounted."""
        return StoreUnavailableError(f"{self.folder} is gone")

    @contextlib.contextmanager
    def written(self, pieces: Sequence[bytes], durable: bool = False) -> Iterator[Path]:
        """A file that holds ``pieces``, for as long as it is not moved away.

        Args:
            durable: also after a crash of the machine.
        """
        path = self.incoming / secrets.token_hex(16)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            handle = os.open(path, flags, 0o600)
        except FileNotFoundError:
            self.make(self.incoming)
            handle = os.open(path, flags, 0o600)
        try:
            with open(handle, "wb", buffering=0) as file:
                for piece in pieces:
                    _write_all(file.fileno(), piece)
                if durable:
                    os.fsync(file.fileno())
            yield path
        finally:
            with contextlib.suppress(OSError):
                path.unlink()

    def sweep_incoming(self) -> None:
        """Remove what processes that were killed left half written."""
        before = time.time() - _ABANDONED_S
        for path, about in listed(self.incoming):
            if about.st_mtime < before:
                with contextlib.suppress(OSError):
                    os.unlink(path)


def _write_all(handle: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(handle, left) :]


def read_whole(path: Path) -> bytes | None:
    """What a file holds; ``None`` where there is no such file, or something that is none of ours.

    Raises:
        OSError: it cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe of that name would block
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST:
            return None
        with open(handle, "rb", buffering=0, closefd=False) as file:
            return file.readall()
    except OSError as error:
        if error.errno == errno.ESTALE:  # removed on another machine in this moment
            return None
        raise
    finally:
        os.close(handle)


def listed(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Paths in a folder, and what the file system says of each; without those that vanish meanwhile, or the folder itself."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    yield entry.path, entry.stat(follow_symlinks=False)
                except OSError as error:
                    if error.errno not in _GONE:
                        raise
    except OSError as error:
        if error.errno not in _GONE:
            raise
