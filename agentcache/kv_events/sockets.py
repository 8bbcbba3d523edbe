"""The two sockets of a publisher: batches go out of one, the other answers who missed some."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable

import zmq

from agentcache.kv_events.endpoint import Endpoint
from agentcache.kv_events.format import END_OF_REPLAY, Message
from agentcache.kv_events.replay import ReplayBuffer

logger = logging.getLogger(__name__)

_HIGH_WATER = 100_000
"""Batches that wait for a reader that is behind; then it misses some."""

_LINGER_MS = 200


class EventSockets:
    """Opened on one thread, then used and closed on another.

    Args:
        topic: what readers subscribe to.
    """

    def __init__(self, events: Endpoint, replay: Endpoint | None, topic: str) -> None:
        self.events = events
        self.replay = replay
        self._topic = topic.encode()
        self._open: dict[Endpoint, zmq.Socket[bytes]] = {}
        self._readers = 0

    def open(self) -> None:
        """Open what is not open yet.

        Raises:
            SettingsError: it cannot be listened there, or nobody answers; the next call tries again.
        """
        if self.events not in self._open:
            # Who connects learns of its readers, which it must: what is sent before they are there is lost.
            self._open_one(self.events, zmq.PUB if self.events.bind else zmq.XPUB)
        if self.replay is not None and self.replay not in self._open:
            self._open_one(self.replay, zmq.ROUTER)

    def _open_one(self, endpoint: Endpoint, kind: int) -> None:
        endpoint.check_free_or_answering()
        made: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        try:
            made.set_hwm(_HIGH_WATER)
            made.linger = _LINGER_MS
            made.ipv6 = endpoint.ipv6
            made.immediate = not endpoint.bind  # whose reader has gone is told so, and keeps nothing for the next one
            (made.bind if endpoint.bind else made.connect)(endpoint.address)
        except zmq.ZMQError as error:
            made.close(0)
            raise endpoint.error(error.strerror or str(error)) from None
        self._open[endpoint] = made

    @property
    def missing(self) -> bool:
        """Whether ``open`` has something left to do."""
        return any(endpoint not in self._open for endpoint in (self.events, self.replay) if endpoint is not None)

    @property
    def heard(self) -> bool:
        """Whether what is sent now can reach anybody.  Who is connected to may have readers at any time."""
        return self.events in self._open and (self.events.bind or self._readers > 0)

    @property
    def addresses(self) -> list[str]:
        """Where it listens, or what it is connected to, with the ports that the system gave."""
        return [made.getsockopt_string(zmq.LAST_ENDPOINT) for made in self._open.values()]

    def sources(self) -> list[zmq.Socket[bytes]]:
        """What can be polled."""
        return list(self._open.values())

    def send(self, message: Message) -> None:
        self._open[self.events].send_multipart([self._topic, *message])

    def serve(self, kept: ReplayBuffer) -> bool:
        """Take in what readers sent; whether a new one has come that this side connected to."""
        new = False
        for endpoint, made in list(self._open.items()):
            with contextlib.suppress(zmq.Again):
                while endpoint is self.replay or not endpoint.bind:
                    frames = made.recv_multipart(zmq.NOBLOCK)
                    if endpoint is self.replay:
                        self._answer(made, frames, kept)
                    else:
                        new |= self._count(frames[0])
        return new

    def _count(self, frame: bytes) -> bool:
        """A reader that came or went says so with 1 or 0 and its topic."""
        if frame[:1] == b"\x01":
            self._readers += 1
            return True
        self._readers = max(0, self._readers - 1)
        return False

    @staticmethod
    def _answer(made: zmq.Socket[bytes], frames: list[bytes], kept: ReplayBuffer) -> None:
        """Batches since the number that was asked for, and what says that there are no more."""
        if len(frames) != 3 or frames[1] or len(frames[2]) != 8:
            logger.warning("a request for events was not understood: it has frames of %s bytes", list(map(len, frames)))
            return
        answers: Iterable[Message] = kept.since(int.from_bytes(frames[2], "big"))
        for message in answers:
            made.send_multipart([frames[0], b"", *message])
        made.send_multipart([frames[0], b"", END_OF_REPLAY, b""])

    def close(self) -> None:
        """What was sent goes out behind it, for a fraction of a second."""
        for made in self._open.values():
            made.close()
        self._open.clear()
