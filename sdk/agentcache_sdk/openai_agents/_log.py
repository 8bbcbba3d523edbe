"""A conversation as a file of JSON lines that survives a crash: one line a change, written whole or not at all.

::

    {"agentcache_session": 1, "session_id": "..."}
    {"add": [item, item]}            {"keep": 3, "note": "..."}       {"call": {...}}       {"announce": {...}}
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FORMAT = 1


class SessionLog:
    """One writer at a time.  A line that a crash cut short is dropped when the file is read again.

    Args:
        path: made when something is written first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Iterator[dict[str, Any]]:
        """What was written, without the first line's format.

        Raises:
            ValueError: not such a file, or a line in its middle is damaged.
        """
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{self.path}: line {number} is not JSON: {error}") from None
            if number == 1 and not (isinstance(entry, dict) and entry.get("agentcache_session") == FORMAT):
                raise ValueError(f"{self.path}: expected a session of format {FORMAT}, got {line[:80]!r}")
            yield entry

    def write(self, *entries: dict[str, Any]) -> None:
        """Append, and return when it is on the disk.

        Raises:
            TypeError: something that JSON has no form for; nothing was written.
        OSError: the disk is full, or the file cannot be opened.
        """
        data = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries).encode(
            "utf-8", "surrogatepass"
        )
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            before = os.fstat(descriptor).st_size
            written = os.write(descriptor, data)
            if written < len(data):  # a full disk: half a line would spoil the next one
                os.ftruncate(descriptor, before)
                raise OSError(f"{self.path}: wrote {written} of {len(data)} bytes; nothing was kept")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
