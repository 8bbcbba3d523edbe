"""How a small record that several servers write looks in a store.

::

    | magic | format | length of key | version | expires (ms since 1970) | checksum of all else | key | value |
    0       4        6               8         16                        24                     40

A store that compares and sets need look at the first 16 bytes only: with its key they say which version there is.
"""

from __future__ import annotations

import struct
import time

from xxhash import xxh3_128

from agentcache.store.base import Record

_HEAD = struct.Struct(">4sHHQQ")
_DIGEST = 16
MAGIC = b"ACRC\x00\x01"
"""With the format's version."""

VERSION_ENDS = 16


def version_head(key: bytes, version: int) -> bytes:
    """The first ``VERSION_ENDS`` bytes of a record."""
    return _HEAD.pack(MAGIC[:4], 1, len(key), version, 0)[:VERSION_ENDS]


def pack_record(key: bytes, version: int, value: bytes, ttl_s: float) -> bytes:
    """
    Raises:
        ValueError: a key of more than 65,535 bytes.
    """
    if len(key) > 0xFFFF:
        raise ValueError(f"got a key of {len(key)} bytes, expected at most 65535")
    expires = int((time.time() + ttl_s) * 1000)
    head = _HEAD.pack(MAGIC[:4], 1, len(key), version, max(0, expires))
    return b"".join((head, _checksum(head, key, value), key, value))


def unpack_record(packed: bytes, key: bytes) -> Record | None:
    """The record, expired or not (``expired``); ``None`` for any bytes that are not a whole record of this key."""
    if len(packed) < _HEAD.size + _DIGEST or packed[: len(MAGIC)] != MAGIC:
        return None
    head, digest = packed[: _HEAD.size], packed[_HEAD.size : _HEAD.size + _DIGEST]
    of_key, version = _HEAD.unpack(head)[2:4]
    named = packed[_HEAD.size + _DIGEST :]
    value = named[of_key:]
    if named[:of_key] != key or digest != _checksum(head, key, value):
        return None
    return Record(version, value)


def expired(packed: bytes, now: float) -> bool:
    """Whether a record, of which at least the head is here, is past its time; bytes that are no record are."""
    if len(packed) < _HEAD.size or packed[: len(MAGIC)] != MAGIC:
        return True
    return int(_HEAD.unpack_from(packed)[4]) <= now * 1000


def _checksum(head: bytes, key: bytes, value: bytes) -> bytes:
    whole = xxh3_128(head)
    whole.update(key)
    whole.update(value)
    return whole.digest()
