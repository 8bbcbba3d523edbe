"""How a page looks in a shared store, and what is looked at before a value from one is believed.

::

    key in the store     agentcache:kv1:<model, 16 hex digits>:float32:16:0/1:<chain key in hex>
                                  │                │              │     │   └ shard of how many (tensor parallel)
                                  └ _FORMAT        └ fingerprint  │     └ tokens a page
                                                                  └ type of the numbers

    value   | fixed fields | key | parent | tokens | zeros | checksum of all before | keys and values, all layers |
            0             60                                                        end of header, a multiple of 64

The namespace of a tenant is part of the chain key (its root), so tenants cannot meet in a store.  Checksums (xxh3-128) find what
was damaged; they do not prove who wrote it: whoever may write to the store is trusted.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from enum import Enum

from xxhash import xxh3_128_digest

from agentcache.cache.tiers import StoredPage

_FORMAT = 1
"""Part of keys and values: raise it whenever the same page would be written in another way."""

_MAGIC = b"ACPG"
_FIXED = struct.Struct("<4sHHBBHIQ16s16s4x")
"""Magic, format, length of the header, of the key, of the parent, 0, length of the tokens, of the data; then the digest of the
fingerprint, and the checksum of the data."""

_DIGEST = 16
_ALIGNED = 64
"""Where the data begins is a multiple of it, so that numbers of any type can be read where they lie."""


class Refusal(str, Enum):
    """Why a value is not the page that was asked for; the value is also the name that it is counted under."""

    SHORT = "short"
    """It ends before it should."""
    DAMAGED = "damaged"
    """A checksum does not fit, or something follows."""
    VERSION = "version"
    """It is a page in another format."""
    FOREIGN = "foreign"
    """It is no page, or one of another model, type of numbers or key."""
    TOKENS = "tokens"
    """It has the key, and other tokens or another parent: a collision of hashes."""


def fingerprint_digest(fingerprint: str) -> bytes:
    """16 bytes that stand for a fingerprint; cryptographic, since a file's maker may have had a hand in it."""
    return hashlib.blake2b(fingerprint.encode(), digest_size=_DIGEST).digest()


@dataclass(frozen=True)
class StoreKeys:
    """Names of one model's pages in a store.

    Attributes:
        fingerprint: of everything that a page's bytes depend on beside its tokens: weights, shape, type of the numbers.
        dtype: type of the numbers, as people know it.
        page_size: tokens a page.
        shard: which part of each page's heads this is, of how many.
    """

    fingerprint: str
    dtype: str
    page_size: int
    shard: str = "0/1"
    prefix: bytes = field(init=False)
    """What all keys begin with."""

    def __post_init__(self) -> None:
        model = fingerprint_digest(self.fingerprint).hex()[:16]
        prefix = f"agentcache:kv{_FORMAT}:{model}:{self.dtype}:{self.page_size}:{self.shard}:"
        object.__setattr__(self, "prefix", prefix.encode())

    def key(self, chain_key: bytes) -> bytes:
        """Name of the page that has this key in the cache."""
        return self.prefix + chain_key.hex().encode()


def pack_page(page: StoredPage, fingerprint: str) -> bytes:
    """A page as a value; its data is copied once, after it has arrived (``StoredPage.whole``).

    Raises:
        ValueError: a key or parent of more than 255 bytes.
    """
    page.whole()
    data = memoryview(page.data).cast("B")
    if max(len(page.key), len(page.parent)) > 255:
        raise ValueError(f"got keys of {len(page.key)} and {len(page.parent)} bytes, expected at most 255")
    named = page.key + page.parent + page.tokens
    end = _FIXED.size + len(named) + _DIGEST
    zeros = bytes(-end % _ALIGNED)
    length = end + len(zeros)
    if length > 0xFFFF:
        raise ValueError(f"got {len(page.tokens)} bytes of tokens, expected at most 65000")
    fixed = _FIXED.pack(
        _MAGIC,
        _FORMAT,
        length,
        len(page.key),
        len(page.parent),
        0,
        len(page.tokens),
        len(data),
        fingerprint_digest(fingerprint),
        xxh3_128_digest(data),
    )
    head = fixed + named + zeros
    return b"".join((head, xxh3_128_digest(head), data))


def unpack_page(
    value: bytes | memoryview, key: bytes, parent: bytes, tokens: bytes, fingerprint: str
) -> StoredPage | Refusal:
    """The page in ``value`` if it is this one, whole and unaltered; never raises, whatever ``value`` holds.

    The page's data lies in ``value``: nothing is copied.
    """
    view = memoryview(value).cast("B")
    if len(view) < _FIXED.size:
        return Refusal.SHORT if bytes(view[:4]) == _MAGIC[: len(view)] else Refusal.FOREIGN
    magic, version, length, of_key, of_parent, _, of_tokens, of_data, digest, checksum = _FIXED.unpack_from(view)
    if magic != _MAGIC:
        return Refusal.FOREIGN
    if version != _FORMAT:
        return Refusal.VERSION
    end = _FIXED.size + of_key + of_parent + of_tokens
    if len(view) < length:
        return Refusal.SHORT
    if length < end + _DIGEST or xxh3_128_digest(view[: length - _DIGEST]) != view[length - _DIGEST : length]:
        return Refusal.DAMAGED
    # From here on the header says what its writer meant.
    if digest != fingerprint_digest(fingerprint):
        return Refusal.FOREIGN
    named = bytes(view[_FIXED.size : end])
    if named[:of_key] != key:
        return Refusal.FOREIGN
    if named[of_key:] != parent + tokens or of_parent != len(parent):
        return Refusal.TOKENS
    data = view[length:]
    if len(data) != of_data:
        return Refusal.SHORT if len(data) < of_data else Refusal.DAMAGED
    if xxh3_128_digest(data) != checksum:
        return Refusal.DAMAGED
    return StoredPage(key, parent, tokens, data)
