"""Highest random weight: an order of replicas for each thing, which changes little when replicas come and go.

Every replica gets a number for the thing, and the highest wins.  A replica that leaves hands on only what it had won, and one
that joins wins 1/N of everything from all others.  Thaler and Ravishankar, "Using name-based mappings to increase hit rates"
(1998).
"""

from __future__ import annotations

from collections.abc import Iterable

from xxhash import xxh3_64_intdigest


def weight(thing: bytes, replica: str) -> int:
    """What ``replica`` bids for ``thing``; 64 bits."""
    return xxh3_64_intdigest(len(thing).to_bytes(4, "little") + thing + replica.encode())


def ordered(thing: bytes, replicas: Iterable[str]) -> list[str]:
    """``replicas``, the one that ``thing`` belongs to first."""
    return sorted(replicas, key=lambda name: (weight(thing, name), name), reverse=True)
