"""Which sessions an owner has, in a store that finds records by their key alone.

::

    agentcache:sessions1:<owner>:<0 to f>     {"sess_…": when its time is over, …}

An owner's ids are spread over sixteen records, so that servers that make sessions at the same time seldom write the same one.
Ids whose time is over go with the next write; of more than fit, those go whose time is over first.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Mapping
from hashlib import blake2b

from agentcache.sessions.vault import RecordName
from agentcache.store.base import PageStore

PARTS = 16
_PER_PART = 2048
_KNOWN = 50_000
_ATTEMPTS = 8
_LARGEST = 2**20

Entries = dict[str, float]


class SessionIndex:
    """Lists may lag behind, and never keep anybody from finding a session by its id.  Safe to use from any thread.

    Args:
        timeout_s: of a call of the store.
    """

    def __init__(self, store: PageStore, timeout_s: float) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._owed: dict[bytes, Entries] = {}
        self._known: dict[RecordName, float] = {}
        """Until when the index has, or will have, an id."""

    @property
    def owing(self) -> int:
        """Parts that are to be written."""
        return len(self._owed)

    def note(self, name: RecordName, ttl_s: float) -> bool:
        """A record was written.  Whether the index must say so, which it need not where it knows the id for long enough."""
        now = time.time()
        with self._lock:
            if name.snapshot is not None or self._known.get(name, 0.0) - now > ttl_s / 2:
                return False
            if len(self._known) >= _KNOWN:
                self._known = {name: until for name, until in self._known.items() if until > now}
            if len(self._known) < _KNOWN:
                self._known[name] = now + ttl_s
            self._owed.setdefault(_key(name.owner, _part(name.id)), {})[name.id] = now + ttl_s
            return True

    def write_part(self) -> None:
        """Write one of the parts that are owed.

        Raises:
            StoreUnavailableError: what was not written is still owed.
        """
        with self._lock:
            if not self._owed:
                return
            key = next(iter(self._owed))
            entries = self._owed.pop(key)
        written = False
        try:
            written = self._merge(key, entries)
        finally:
            if not written:
                self._owe(key, entries)

    def ids_in(self, owner: bytes, part: int) -> list[str]:
        """Ids of one of ``PARTS`` parts, each of which is a call of the store.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        key = _key(owner, part)
        record = self._store.load(key, self._timeout_s)
        found = {} if record is None else _entries(record.value)
        with self._lock:
            found |= self._owed.get(key, {})
        now = time.time()
        return [name for name, until in found.items() if until > now]

    def _merge(self, key: bytes, entries: Mapping[str, float]) -> bool:
        for _ in range(_ATTEMPTS):
            record = self._store.load(key, self._timeout_s)
            now = time.time()
            merged = {} if record is None else _entries(record.value)
            for name, until in entries.items():
                merged[name] = max(until, merged.get(name, 0.0))
            kept = sorted(((until, name) for name, until in merged.items() if until > now), reverse=True)[:_PER_PART]
            value = zlib.compress(json.dumps({name: round(until) for until, name in kept}).encode(), 1)
            last = max((until for until, _ in kept), default=now)
            expected = 0 if record is None else record.version
            if self._store.save(key, value, expected, last - now + 1, self._timeout_s):
                return True
        return False

    def _owe(self, key: bytes, entries: Entries) -> None:
        with self._lock:
            self._owed[key] = entries | self._owed.get(key, {})


def _entries(value: bytes) -> Entries:
    """Of a record that anybody may have written; nothing, where it is none."""
    try:
        data = json.loads(zlib.decompressobj().decompress(value, _LARGEST))
        return {str(name): float(until) for name, until in data.items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, zlib.error):
        return {}


def _part(session_id: str) -> int:
    return blake2b(session_id.encode(), digest_size=1).digest()[0] % PARTS


def _key(owner: bytes, part: int) -> bytes:
    return b"agentcache:sessions1:" + blake2b(owner, digest_size=16).hexdigest().encode() + f":{part:x}".encode()
