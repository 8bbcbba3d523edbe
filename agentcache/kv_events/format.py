"""Events as vLLM writes them: a batch is one message of three frames.

::

    topic  |  sequence number, 8 bytes big-endian  |  msgpack: [seconds since 1970, [event, ...], data-parallel rank]

An event is a map whose ``type`` says which it is (vLLM from 0.24 on), or an array that begins with it (before that).  Names and
order of the fields are vLLM's; ``docs/kv-events.md`` has an example.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgpack  # type: ignore[import-untyped]

from agentcache.cache.hashing import unpack_tokens
from agentcache.cache.residency import PageArrived

Layout = Literal["maps", "arrays"]
Event = dict[str, Any]

MEDIA = {"device": "GPU", "host": "CPU", "disk": "STORAGE"}
"""Tiers in the words that readers know.  The place where attention reads is ``GPU`` to them, whatever it is made of."""

END_OF_REPLAY = b"\xff" * 8
"""In the place of a sequence number, behind the last batch of an answer: -1."""

_RANK = 0
_ARRAY_FIELDS = 7
"""What vLLM wrote behind the name when events were arrays; what came later has names only."""


class Message(NamedTuple):
    """One batch, ready to be sent."""

    sequence: bytes
    payload: bytes


def block_hash(key: bytes) -> int:
    """The last 8 of a key's 16 bytes as an unsigned number, as vLLM cuts its own hashes."""
    return int.from_bytes(key[-8:], "big")


def stored(chain: Sequence[PageArrived], page_size: int) -> Event:
    """That pages which follow each other arrived in one tier."""
    first = chain[0]
    return {
        "type": "BlockStored",
        "block_hashes": [block_hash(page.key) for page in chain],
        "parent_block_hash": None if first.parent == first.root else block_hash(first.parent),
        "token_ids": list(unpack_tokens(b"".join(page.tokens for page in chain))),
        "block_size": page_size,
        "lora_id": None,
        "medium": MEDIA[first.tier],
        "lora_name": None,
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


def removed(keys: Sequence[bytes], tier: str) -> Event:
    """That pages left one tier, those that others follow last."""
    hashes = [block_hash(key) for key in keys]
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": MEDIA[tier], "group_idx": 0}


def cleared() -> Event:
    """That no tier has anything."""
    return {"type": "AllBlocksCleared"}


def pack(sequence: int, events: Sequence[Event], layout: Layout = "maps") -> Message:
    written: list[Any] = list(events) if layout == "maps" else [_as_array(event) for event in events]
    payload: bytes = msgpack.packb([time.time(), written, _RANK])
    return Message(sequence.to_bytes(8, "big"), payload)


def _as_array(event: Event) -> list[Any]:
    """As far as the fields that were there before events became maps; the tag takes the first place."""
    fields = list(event.values())
    return fields[: 1 + _ARRAY_FIELDS] if event["type"] == "BlockStored" else fields[:3]
