"""Batches of late, for readers that missed some."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from agentcache.kv_events.format import Message


class ReplayBuffer:
    """The last batches that were published, at most ``batches`` of them and about ``size`` bytes."""

    def __init__(self, batches: int = 10_000, size: int = 64 * 2**20) -> None:
        self._batches = batches
        self._size = size
        self._bytes = 0
        self._kept: deque[Message] = deque()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, message: Message) -> None:
        self._kept.append(message)
        self._bytes += len(message.payload)
        while len(self._kept) > self._batches or (self._bytes > self._size and len(self._kept) > 1):
            self._bytes -= len(self._kept.popleft().payload)

    def since(self, sequence: int) -> Iterator[Message]:
        """What is kept from batch ``sequence`` on, in order."""
        return (message for message in self._kept if int.from_bytes(message.sequence, "big") >= sequence)
