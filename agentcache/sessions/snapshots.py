"""Sessions on disk: exact ids and text, one JSON file each, which outlive the server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from pathlib import Path

from agentcache.errors import AgentCacheError
from agentcache.sessions.session import Session
from agentcache.sessions.session_json import UNREADABLE, MadeWith, Saved, session_from_json, session_to_json

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class SnapshotNotFoundError(AgentCacheError):
    """No snapshot of that name, or not this key's (HTTP 404)."""


class SnapshotDivergedError(AgentCacheError):
    """Made with another model or template: its ids would not mean the same (HTTP 422)."""


class SnapshotFailedError(AgentCacheError):
    """It cannot be written or read (HTTP 500)."""


class Snapshots:
    """Files ``folder/<owner>/<name>.json``.  May be used from any thread.

    Args:
        made_with: what this server runs.
    """

    def __init__(self, folder: Path, made_with: MadeWith) -> None:
        self._folder = folder
        self._made_with = made_with

    def save(self, name: str, session: Session) -> None:
        """Write the committed turns of ``session``, in place of an older snapshot of that name; atomic and durable.

        Raises:
            SnapshotFailedError: the file cannot be written.
        """
        content = json.dumps(session_to_json(session, self._made_with), ensure_ascii=False, separators=(",", ":"))
        path = self._path(name, session.home.owner)
        scratch: str | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, scratch = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, path)
        except OSError as error:
            if scratch is not None:
                with contextlib.suppress(OSError):
                    os.unlink(scratch)
            raise SnapshotFailedError(f"name: snapshot {name!r} cannot be written: {error.strerror}") from error

    def load(self, name: str, owner: bytes) -> Saved:
        """
        Raises:
            SnapshotNotFoundError: there is none, or it is somebody else's.
            SnapshotDivergedError: it was made with another model or template; the message names both.
            SnapshotFailedError: the file is damaged or cannot be read.
        """
        try:
            content = self._path(name, owner).read_text("utf-8")
        except FileNotFoundError:
            raise SnapshotNotFoundError(f"from_snapshot: got {name!r}, which does not exist") from None
        except (OSError, UnicodeDecodeError) as error:
            raise SnapshotFailedError(f"from_snapshot: {name!r} cannot be read") from error
        try:
            data = json.loads(content)
            snapshot = session_from_json(data)
            differs = self._made_with.differs(data, "the snapshot")
        except UNREADABLE as error:
            raise SnapshotFailedError(f"from_snapshot: {name!r} is damaged or of another format") from error
        if differs is not None:
            raise SnapshotDivergedError(f"from_snapshot: {name!r} does not fit: {differs}")
        return snapshot

    def _path(self, name: str, owner: bytes) -> Path:
        return self._folder / hashlib.sha256(owner).hexdigest()[:32] / f"{name}.json"
