"""Files are replaced whole or not at all, and only if nobody else has written them in between."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class NotWrittenError(Exception):
    """A file that is left as it was; its sentence says why."""


@dataclass(frozen=True, slots=True)
class Original:
    """A file as it was when it was read.

    Attributes:
        path: of the file itself, symbolic links followed.
    """

    path: Path
    mode: int
    size: int
    changed_ns: int

    @classmethod
    def of(cls, path: Path, name: str) -> Original:
        """
        Raises:
            NotWrittenError: it is none that could be replaced.
        """
        if name == "-":
            raise NotWrittenError("standard input cannot be rewritten; --diff shows the change")
        try:
            target = path.resolve(strict=True)
            found = target.stat()
        except (OSError, RuntimeError) as error:  # a circle of links is a RuntimeError before Python 3.13
            raise NotWrittenError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
        if not stat.S_ISREG(found.st_mode):
            raise NotWrittenError("it is no regular file")
        if not found.st_mode & stat.S_IWUSR or not os.access(target, os.W_OK):
            raise NotWrittenError("it is read-only")
        return cls(target, stat.S_IMODE(found.st_mode), found.st_size, found.st_mtime_ns)

    def replace(self, mended: Path) -> None:
        """Put what ``mended`` holds in its place, with the same permissions.

        Raises:
            NotWrittenError: the file was changed since, or cannot be written.
        """
        try:
            now = self.path.stat()
            if (now.st_size, now.st_mtime_ns) != (self.size, self.changed_ns):
                raise NotWrittenError("it was changed while it was being linted")
            _copy_over(mended, self.path, self.mode, now)
        except OSError as error:
            raise NotWrittenError(f"cannot be written: {error.strerror or error}") from None


def _copy_over(mended: Path, target: Path, mode: int, owner: os.stat_result) -> None:
    """Through a file beside it, which takes its place in one step."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:80]}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out, mended.open("rb") as content:
            while block := content.read(1 << 20):
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
        Path(name).chmod(mode)
        with contextlib.suppress(OSError):  # only its owner may give a file away
            os.chown(name, owner.st_uid, owner.st_gid)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for mended copies, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="agentcache-lint-") as folder:
        yield Path(folder)
