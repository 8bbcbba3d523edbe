"""Sessions as a vault keeps them: bytes that are not believed before they were checked.

::

    ACSR | layout | kind | packed | version, 8 bytes | digest, 16 bytes | JSON, packed by zlib where that is shorter

The digest is of the record's name, too: a record that lies under another name is a damaged one.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Any

from agentcache.errors import AgentCacheError
from agentcache.sessions.session import EVENTS_KEPT, Home, Session, VaultCopy
from agentcache.sessions.session_json import UNREADABLE, MadeWith, Saved, session_from_json, session_to_json
from agentcache.sessions.vault import Kept, RecordName

_LAYOUT = 1
_FRONT = "<4sBBBQ"
_FRONT_SIZE = struct.calcsize(_FRONT)
_HEAD_SIZE = _FRONT_SIZE + 16
_MAGIC = b"ACSR"
_PACKED_FROM = 1024
_LARGEST = 2**28
"""Bytes of JSON: what a small record may unpack to is not up to who wrote it."""


class Kind(IntEnum):
    SESSION = 1
    ENDED = 2
    SNAPSHOT = 3


class DamagedRecordError(AgentCacheError):
    """A record that this server cannot read; the message says why, and quotes nothing of it."""


class RecordDivergedError(AgentCacheError):
    """A record of another model or chat template: its ids would not mean the same (HTTP 422)."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Sessions' times are seconds on the engine's clock, which is nobody else's: records have Unix seconds.

    Attributes:
        began: when the engine's clock stood at 0, in Unix seconds.
    """

    began: float

    def to_unix(self, at: float) -> float:
        return at + self.began

    def from_unix(self, at: float) -> float:
        return at - self.began


class Records:
    """May be used from any thread.

    Args:
        made_with: what this server runs.
    """

    def __init__(self, made_with: MadeWith, clock: Clock) -> None:
        self._made_with = made_with
        self.clock = clock

    def of_session(self, session: Session, version: int) -> bytes:
        """The committed turns of ``session``.  Nobody may change it meanwhile (``Session.draft``)."""
        unix = self.clock.to_unix
        data = session_to_json(session, self._made_with, packed=True) | {
            "parent": session.parent,
            "created": unix(session.created),
            "expires": unix(session.expires_at),
            "events": [{**event, "at": unix(event["at"])} for event in session.events],
        }
        return _pack(RecordName(session.home.owner, session.id), Kind.SESSION, version, data)

    def of_end(self, name: RecordName, version: int) -> bytes:
        """What is left of a session that was ended."""
        return _pack(name, Kind.ENDED, version, {})

    def of_snapshot(self, name: RecordName, session: Session, version: int) -> bytes:
        return _pack(name, Kind.SNAPSHOT, version, session_to_json(session, self._made_with, packed=True))

    def session(self, name: RecordName, kept: Kept, home: Callable[[str | None], Home]) -> Session | None:
        """The session of a record; ``None`` for one that was ended.

        Args:
            home: where its owner's sessions of a salt live.

        Raises:
            DamagedRecordError: it cannot be read.
            RecordDivergedError: it was made with another model or template; the message names both.
        """
        kind, data = _unpack(name, kept)
        if kind is Kind.ENDED:
            return None
        if kind is not Kind.SESSION:
            raise DamagedRecordError(f"got a record of kind {kind.name}, expected {Kind.SESSION.name}")
        saved = self._saved(data, f"session: {name.id} does not fit", "the session")
        try:
            return self._revived(name, saved, data, home)
        except UNREADABLE as error:
            raise DamagedRecordError(f"the session in it cannot be read ({type(error).__name__})") from error

    def snapshot(self, name: RecordName, kept: Kept) -> Saved:
        """
        Raises:
            DamagedRecordError, RecordDivergedError: as ``session``.
        """
        kind, data = _unpack(name, kept)
        if kind is not Kind.SNAPSHOT:
            raise DamagedRecordError(f"got a record of kind {kind.name}, expected {Kind.SNAPSHOT.name}")
        return self._saved(data, f"from_snapshot: {name.snapshot!r} does not fit", "the snapshot")

    def _saved(self, data: dict[str, Any], refusal: str, what: str) -> Saved:
        try:
            saved = session_from_json(data)
            differs = self._made_with.differs(data, what)
            whole = not saved.turns or saved.turns[-1].mark == saved.transcript.mark
        except UNREADABLE as error:
            raise DamagedRecordError(f"the session in it cannot be read ({type(error).__name__})") from error
        if differs is not None:
            raise RecordDivergedError(f"{refusal}: {differs}")
        if not whole:
            raise DamagedRecordError("its turns do not end where its transcript ends")
        return saved

    def _revived(
        self, name: RecordName, saved: Saved, data: dict[str, Any], home: Callable[[str | None], Home]
    ) -> Session:
        here, expires, parent = self.clock.from_unix, float(data["expires"]), data["parent"]
        events = [{**event, "event": str(event["event"]), "at": here(float(event["at"]))} for event in data["events"]]
        return Session(
            id=name.id,
            home=home(saved.salt),
            head=saved.head,
            ttl_s=saved.ttl_s,
            created=here(float(data["created"])),
            transcript=saved.transcript,
            metadata=saved.metadata,
            parent=None if parent is None else str(parent),
            turns=saved.turns,
            expires_at=here(expires),
            events=deque(events, maxlen=EVENTS_KEPT),
            copy=VaultCopy(expires=expires),
        )


def _pack(name: RecordName, kind: Kind, version: int, data: dict[str, Any]) -> bytes:
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    packed = zlib.compress(body, 1) if len(body) >= _PACKED_FROM else body
    is_packed = len(packed) < len(body)
    body = packed if is_packed else body
    head = struct.pack(_FRONT, _MAGIC, _LAYOUT, kind, is_packed, version)
    return head + _digest(name, head, body) + body


def _unpack(name: RecordName, kept: Kept) -> tuple[Kind, dict[str, Any]]:
    """
    Raises:
        DamagedRecordError: it is no record of that name and version, or not a whole one.
    """
    if len(kept.record) < _HEAD_SIZE:
        raise DamagedRecordError(f"got {len(kept.record)} bytes, expected {_HEAD_SIZE} at least")
    head, digest = kept.record[:_FRONT_SIZE], kept.record[_FRONT_SIZE:_HEAD_SIZE]
    magic, layout, kind, is_packed, version = struct.unpack(_FRONT, head)
    body = kept.record[_HEAD_SIZE:]
    if magic != _MAGIC or layout != _LAYOUT:
        raise DamagedRecordError(f"got layout {layout} of {magic!r}, expected {_LAYOUT} of {_MAGIC!r}")
    if version != kept.version:
        raise DamagedRecordError(f"it says version {version}, and lies there as version {kept.version}")
    if digest != _digest(name, head, body):
        raise DamagedRecordError("its digest is not that of what is in it")
    try:
        data = json.loads((inflated(body) if is_packed else body).decode("utf-8", "surrogatepass"))
        return Kind(kind), {**data}
    except (*UNREADABLE, zlib.error) as error:
        raise DamagedRecordError(f"what is in it cannot be read ({type(error).__name__})") from error


def inflated(body: bytes, largest: int = _LARGEST) -> bytes:
    """
    Raises:
        ValueError: it is more than ``largest`` bytes, or not all of them are there.
        zlib.error: it is nothing that was packed.
    """
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, largest)
    if not inflater.eof:
        raise ValueError(f"got more than {largest} bytes, or only a part of them")
    return data


def _digest(name: RecordName, head: bytes, body: bytes) -> bytes:
    state = blake2b(digest_size=16)
    for part in (name.owner, name.id.encode("utf-8", "surrogatepass"), head, body):
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()
