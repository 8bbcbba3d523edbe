"""A reader of page events that shares no code with what writes them: sockets, frames and msgpack by the book."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgpack
import zmq

STORED = ("type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")
MEDIUM = {"device": "GPU", "host": "CPU", "disk": "STORAGE"}
"""Tiers in the words of the format."""


@dataclass
class Block:
    """One block of one medium, as it was told."""

    parent: int | None
    tokens: tuple[int, ...]


@dataclass
class View:
    """What a reader takes a server to hold, by medium and hash; every event must make sense beside what came before.

    Attributes:
        late: it reads a server that has published before: it does not know what is taken back until everything is told anew,
            and pages below the device may follow pages that left before.
    """

    block_size: int
    late: bool = False
    blocks: dict[str, dict[int, Block]] = field(default_factory=lambda: {medium: {} for medium in MEDIUM.values()})
    ever: set[int] = field(default_factory=set)
    next: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    def take(self, sequence: int, payload: bytes) -> None:
        assert sequence == self.next or not self.events, f"batch {sequence} instead of {self.next}"
        self.next = sequence + 1
        at, events, rank = msgpack.unpackb(payload)
        assert isinstance(at, float) and abs(time.time() - at) < 3600 and rank == 0 and events
        for event in events:
            self.events.append(event)
            getattr(self, event["type"])(event)

    def catch_up(self, replay: str) -> None:
        """Have what was missed."""
        for number, payload in replayed(replay, self.next):
            self.take(number, payload)

    def BlockStored(self, event: dict[str, Any]) -> None:  # noqa: N802  named as on the wire
        assert tuple(event)[: len(STORED)] == STORED
        assert (event["lora_id"], event["lora_name"], event["block_size"]) == (None, None, self.block_size)
        hashes, ids, blocks = event["block_hashes"], event["token_ids"], self.blocks[event["medium"]]
        assert hashes and len(ids) == len(hashes) * self.block_size and len(set(hashes)) == len(hashes)
        before = event["parent_block_hash"]
        if before is not None:
            known = before in (blocks if event["medium"] == "GPU" else self.ever)
            assert known or (self.late and event["medium"] != "GPU"), "it follows a block that was never told"
        for index, name in enumerate(hashes):
            assert 0 <= name < 2**64 and name not in blocks, "told twice"
            blocks[name] = Block(before, tuple(ids[index * self.block_size : (index + 1) * self.block_size]))
            before = name
        self.ever.update(hashes)

    def BlockRemoved(self, event: dict[str, Any]) -> None:  # noqa: N802
        anew = not self.late or any(earlier["type"] == "AllBlocksCleared" for earlier in self.events)
        for name in event["block_hashes"]:
            if anew:
                del self.blocks[event["medium"]][name]

    def AllBlocksCleared(self, event: dict[str, Any]) -> None:  # noqa: N802
        for blocks in self.blocks.values():
            blocks.clear()

    def hashes(self, medium: str = "GPU") -> set[int]:
        return set(self.blocks[medium])


class Reader:
    """A subscriber."""

    def __init__(self, address: str, view: View, topic: str = "", *, bind: bool = False) -> None:
        self.view = view
        self.replayed_to = 0
        """Batches before this one were had by replay, and are passed over when they come."""
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
        self.topic = topic.encode()
        self.socket.subscribe(self.topic)
        (self.socket.bind if bind else self.socket.connect)(address)

    def read(self, wait_s: float = 0.0) -> bool:
        """Take in what has come, and the first of it for so long; whether there was anything."""
        some = False
        while self.socket.poll(0 if some else 1000 * wait_s):
            topic, sequence, payload = self.socket.recv_multipart()
            assert topic == self.topic
            number = struct.unpack(">Q", sequence)[0]
            if number >= self.replayed_to:
                self.view.take(number, payload)
            some = True
        return some

    def catch_up(self, replay: str) -> None:
        """Have what was missed before the subscription came into force."""
        self.view.catch_up(replay)
        self.replayed_to = self.view.next

    def until(self, holds: Callable[[], bool], wait_s: float = 20) -> None:
        deadline = time.monotonic() + wait_s
        while not holds():
            assert time.monotonic() < deadline, f"still not so: {self.view}"
            self.read(0.02)

    def close(self) -> None:
        self.socket.close(0)


@contextmanager
def reading(
    address: str, block_size: int, topic: str = "", *, bind: bool = False, late: bool = False
) -> Iterator[Reader]:
    reader = Reader(address, View(block_size, late), topic, bind=bind)
    try:
        yield reader
    finally:
        reader.close()


def replayed(address: str, since: int, wait_s: float = 10) -> list[tuple[int, bytes]]:
    """Batches from number ``since`` on, as a replay socket answers."""
    found: list[tuple[int, bytes]] = []
    asking: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    try:
        asking.connect(address)
        asking.send_multipart([b"", struct.pack(">Q", since)])
        while asking.poll(1000 * wait_s):
            empty, sequence, payload = asking.recv_multipart()
            assert empty == b""
            if sequence == struct.pack(">q", -1):
                assert payload == b""
                return found
            found.append((struct.unpack(">Q", sequence)[0], payload))
    finally:
        asking.close(0)
    raise AssertionError("the end of the answer did not come")
