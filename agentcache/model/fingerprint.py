"""Content fingerprints of model files, remembered so that a second start need not read gigabytes again."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import xxhash

_MEMO = "fingerprints.json"
_BLOCK = 4 * 2**20


class Fingerprints:
    """xxh3-128 of files, kept in ``home`` under the file's path, size and time of change."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def of(self, paths: Iterable[Path], *ingredients: str) -> str:
        """One fingerprint (16 hex digits) of the contents of ``paths``, in order, and of ``ingredients``."""
        total = xxhash.xxh3_128()
        for part in (*ingredients, *(self._content(path) for path in paths)):
            encoded = part.encode()
            total.update(len(encoded).to_bytes(8, "little") + encoded)
        return str(total.hexdigest()[:16])

    def _content(self, path: Path) -> str:
        path = path.resolve()
        stat = path.stat()
        seen = [stat.st_size, stat.st_mtime_ns]
        memo = self._read()
        entry = memo.get(str(path))
        if isinstance(entry, dict) and entry.get("seen") == seen and isinstance(entry.get("xxh3"), str):
            return str(entry["xxh3"])
        content = xxhash.xxh3_128()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                content.update(block)
        memo[str(path)] = {"seen": seen, "xxh3": content.hexdigest()}
        self._write(memo)
        return str(content.hexdigest())

    def _read(self) -> dict[str, Any]:
        try:
            memo = json.loads((self._home / _MEMO).read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return memo if isinstance(memo, dict) else {}

    def _write(self, memo: dict[str, Any]) -> None:
        # Only a saving: a home that cannot be written costs time, not the start.
        with contextlib.suppress(OSError):
            self._home.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{_MEMO}.", dir=self._home)
            with os.fdopen(handle, "w") as file:
                json.dump(memo, file)
            Path(name).replace(self._home / _MEMO)
