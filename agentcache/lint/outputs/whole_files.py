"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from agentcache.errors import SettingsError


@contextmanager
def written_whole(file: Path, flag: str) -> Iterator[TextIO]:
    """A new file that takes the place of ``file`` when all of it is written.

    Args:
        flag: of the command line, which named the file.

    Raises:
        SettingsError: it cannot be written.
    """
    if is_standard_output(file):
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        if file.exists() and not file.is_file():  # a device, or a pipe
            with file.open("w", encoding="utf-8", errors="backslashreplace") as out:
                yield out
            return
        target = Path(os.path.realpath(file))
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="backslashreplace", dir=target.parent, prefix=target.name, delete=False
        ) as out:
            try:
                yield out  # type: ignore[misc]
                out.close()
                Path(out.name).chmod(_mode(target))
                os.replace(out.name, target)
            except BaseException:
                with suppress(OSError):
                    os.unlink(out.name)
                raise
    except OSError as error:
        raise SettingsError(f"{flag} {file}: cannot be written: {error.strerror or error}") from None


def is_standard_output(file: Path) -> bool:
    """Whether it is what standard output goes to, as ``/dev/stdout`` is: that may be a file, which others go on writing to."""
    try:
        return os.path.samestat(file.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # there is none, or nothing real behind it
        return False


def _mode(file: Path) -> int:
    """Permissions of the file that is replaced, or of a new one."""
    if file.exists():
        return file.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def check_writable(file: Path | None, flag: str) -> None:
    """Say before the work what would fail behind it.

    Raises:
        SettingsError: the folder is not there or cannot be written to, or the name is a folder's.
    """
    if file is None or is_standard_output(file):
        return
    folder = Path(os.path.realpath(file)).parent
    if file.is_dir():
        raise SettingsError(f"{flag} {file}: got a folder, expected the name of a file")
    if not folder.is_dir():
        raise SettingsError(f"{flag} {file}: cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK) and not (file.exists() and not file.is_file()):
        raise SettingsError(f"{flag} {file}: cannot be written: the folder {folder} cannot be written to")
