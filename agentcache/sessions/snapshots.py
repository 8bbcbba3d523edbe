"""Sessions on disk: exact ids and text, one JSON file each, which outlive the server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentcache.chat.tool_text import Announcement
from agentcache.errors import AgentCacheError
from agentcache.sessions.added_tools import AddedTools
from agentcache.sessions.session import Figures, Head, Session, Turn
from agentcache.sessions.transcript import EndToken, KnownReply, Mark, Transcript

FORMAT = 3
_READABLE = (1, 2, FORMAT)
"""Format 1 says nothing of replies: its conversations go on by their text.  Format 2 knows no tools that turns added."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MADE_WITH = ("model revision", "chat template")


class SnapshotNotFoundError(AgentCacheError):
    """No snapshot of that name, or not this key's (HTTP 404)."""


class SnapshotDivergedError(AgentCacheError):
    """Made with another model or template: its ids would not mean the same (HTTP 422)."""


class SnapshotFailedError(AgentCacheError):
    """It cannot be written or read (HTTP 500)."""


@dataclass(frozen=True, slots=True)
class MadeWith:
    """What ids depend on; a snapshot is restored only where both are the same."""

    revision: str
    template: str
    """A hash of the chat templates; of no matter to a raw session."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot restores."""

    head: Head
    transcript: Transcript
    turns: list[Turn]
    ttl_s: float
    salt: str | None
    metadata: dict[str, Any]


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
        content = json.dumps(self._to_json(session), ensure_ascii=False, separators=(",", ":"))
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

    def load(self, name: str, owner: bytes) -> Snapshot:
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
            snapshot = _from_json(data)
            self._check(name, data)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise SnapshotFailedError(f"from_snapshot: {name!r} is damaged or of another format") from error
        return snapshot

    def _path(self, name: str, owner: bytes) -> Path:
        return self._folder / hashlib.sha256(owner).hexdigest()[:32] / f"{name}.json"

    def _check(self, name: str, data: dict[str, Any]) -> None:
        ours = self._made_with
        pairs = [(data["revision"], ours.revision), (data["template"], ours.template)]
        concerned = 1 if data["head"]["raw"] else 2
        differ = [
            f"{what}: the snapshot has {was}, this server has {now}"
            for what, (was, now) in list(zip(_MADE_WITH, pairs, strict=True))[:concerned]
            if was != now
        ]
        if differ:
            raise SnapshotDivergedError(f"from_snapshot: {name!r} does not fit: {'; '.join(differ)}")

    def _to_json(self, session: Session) -> dict[str, Any]:
        head = session.head
        return {
            "format": FORMAT,
            "revision": self._made_with.revision,
            "template": self._made_with.template,
            "salt": session.home.salt,
            "ttl_s": session.ttl_s,
            "metadata": session.metadata,
            "head": {
                "raw": head.raw,
                "messages": list(head.messages),
                "tools": head.tools,
                "transcript": _transcript_to_json(head.transcript),
            },
            "transcript": _transcript_to_json(session.transcript),
            "turns": [
                {
                    "messages": list(turn.messages),
                    "mark": turn.mark,
                    "end": turn.end,
                    "replaced": None if turn.replaced is None else _transcript_to_json(turn.replaced),
                    "figures": asdict(turn.figures),
                    "turn_id": turn.turn_id,
                    "added": _added_to_json(turn.added),
                }
                for turn in session.turns
            ],
        }


def _added_to_json(added: AddedTools | None) -> dict[str, Any] | None:
    return None if added is None else {"schemas": list(added.schemas), "told": added.told}


def _added(data: dict[str, Any] | None) -> AddedTools | None:
    return None if data is None else AddedTools(tuple(data["schemas"]), Announcement(data["told"]))


def _transcript_to_json(transcript: Transcript) -> dict[str, Any]:
    return {
        "ids": transcript.ids.tolist(),
        "text": transcript.text,
        "end": transcript.end,
        "replies": [reply._asdict() for reply in transcript.replies],
    }


def _transcript(data: dict[str, Any]) -> Transcript:
    replies = tuple(_reply(reply) for reply in data.get("replies", ()))
    return Transcript(array("I", data["ids"]), str(data["text"]), _end(data["end"]), replies)


def _reply(data: dict[str, Any]) -> KnownReply:
    return KnownReply(
        message=int(data["message"]),
        start=Mark(*data["start"]),
        end=Mark(*data["end"]),
        end_token=_end(data["end_token"]),
        header=int(data["header"]),
        reasoning=str(data["reasoning"]),
        call_ids=tuple(map(str, data["call_ids"])),
    )


def _end(data: list[Any] | None) -> EndToken | None:
    return None if data is None else EndToken(*data)


def _from_json(data: dict[str, Any]) -> Snapshot:
    if data["format"] not in _READABLE:
        raise ValueError(f"got format {data['format']}, expected one of {_READABLE}")
    head = data["head"]
    return Snapshot(
        head=Head(bool(head["raw"]), tuple(head["messages"]), head["tools"], _transcript(head["transcript"])),
        transcript=_transcript(data["transcript"]),
        turns=[
            Turn(
                messages=tuple(turn["messages"]),
                mark=Mark(*turn["mark"]),
                end=_end(turn["end"]),
                replaced=None if turn["replaced"] is None else _transcript(turn["replaced"]),
                figures=Figures(**turn["figures"]),
                turn_id=turn.get("turn_id"),
                added=_added(turn.get("added")),
            )
            for turn in data["turns"]
        ],
        ttl_s=float(data["ttl_s"]),
        salt=data["salt"],
        metadata=dict(data["metadata"]),
    )
