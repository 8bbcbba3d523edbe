"""Names of pages.

A page is named by a hash of everything up to its end::

    root ──► key(0) = H(root   ‖ tokens of page 0)
             key(1) = H(key(0) ‖ tokens of page 1)
             key(2) = H(key(1) ‖ tokens of page 2)   ...

so equal keys mean equal beginnings.  H is xxh3-128, which is fast but not cryptographic; the tree therefore compares the
tokens of every page it hands out, and a collision costs a hit, never a wrong answer.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable

from xxhash import xxh3_128_digest

TOKEN_BYTES = 4

page_digest = xxh3_128_digest


def pack_tokens(ids: Iterable[int]) -> bytes:
    """Token ids as 4-byte little-endian unsigned integers.

    Raises:
        OverflowError: an id below 0 or above 2**32 - 1.
    """
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_tokens(packed: bytes) -> tuple[int, ...]:
    """The ids that ``pack_tokens`` packed."""
    ids = array("I", packed)
    if sys.byteorder == "big":
        ids.byteswap()
    return tuple(ids)


def page_key(parent: bytes, page_token_bytes: bytes) -> bytes:
    """Key of a full page (16 bytes) under the key of the page before it, or under a namespace root."""
    return page_digest(parent + page_token_bytes)


def namespace_root(*ingredients: str | bytes | None) -> bytes:
    """Root key of a namespace: 16 bytes from model revision, adapter, API key, salt, in an order the caller keeps.

    Every ingredient carries its kind and length, so that ("ab", "c"), ("a", "bc"), ("abc", None) and ("abc", "") all differ.
    """
    parts: list[bytes] = [b"agentcache-namespace-1"]
    for ingredient in ingredients:
        if ingredient is None:
            parts.append(b"-")
            continue
        # Lone surrogates are legal in JSON strings, and a salt may hold them.
        raw = ingredient.encode("utf-8", "surrogatepass") if isinstance(ingredient, str) else ingredient
        kind = b"s" if isinstance(ingredient, str) else b"b"
        parts.append(kind + len(raw).to_bytes(8, "little") + raw)
    return page_digest(b"".join(parts))
