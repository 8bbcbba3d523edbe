"""Publishes what the cache holds, on a thread of its own.

::

    engine, disk thread                     events thread
    hear(residence) ── bounded queue ──►    a few milliseconds later: net of it ── one batch ──► readers
                                            ◄── "batches since …" ── reader that missed some

The step pays for noting a page and nothing else.  When the queue is full, its content is given up, a number is left out, and
everything is told anew; the same happens when the socket can be opened only later.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import zmq

from agentcache.cache.manager import CacheManager
from agentcache.cache.residency import PageArrived, Residence, residents, watch_residency
from agentcache.errors import SettingsError
from agentcache.kv_events.format import Event, Layout, pack
from agentcache.kv_events.ledger import Ledger
from agentcache.kv_events.replay import ReplayBuffer
from agentcache.kv_events.sockets import EventSockets

logger = logging.getLogger(__name__)

_GATHER_S = 0.005
"""Time in which what happens is told in one batch, a step's pages for instance."""

_RETRY_S = 1

Look = Callable[[Callable[[CacheManager], None]], None]
"""Has the engine's thread look at the cache, soon."""


class EventPublisher:
    """One of the engine's neighbours (``engine.neighbours``).

    Args:
        sockets: opened, or tried again until they are.
        trouble: why they are not open yet.
        queue: pages that may wait to be told.
    """

    name = "events"

    def __init__(
        self, sockets: EventSockets, *, trouble: str | None = None, layout: Layout = "maps", queue: int = 100_000
    ) -> None:
        self._sockets = sockets
        self._trouble = trouble
        self._layout: Layout = layout
        self._most = queue
        self._waiting: deque[Residence | list[PageArrived]] = deque()
        self._overflowed = False
        self._given_up = 0
        self._awake = False
        self._closing = False
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_in.setblocking(False)
        self._next = time.time_ns() // 1_000_000
        """Begins higher than any life before has come to (a batch takes more than a millisecond): readers take lower numbers
        for what they had, and would pass over all that a server tells which was started anew."""
        self._kept = ReplayBuffer()
        self._thread = threading.Thread(target=self._run, name="agentcache-events", daemon=True)
        self._look: Look | None = None
        self._ledger = Ledger(0)

    # -- any thread -----------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> list[str]:
        """Where events and, if asked for, replays are to be had."""
        return self._sockets.addresses

    @property
    def given_up(self) -> int:
        """Events that were not told because too many waited."""
        return self._given_up

    def trouble(self) -> str | None:
        return self._trouble

    def follow(self, manager: CacheManager, look: Look) -> None:
        """Publish what ``manager`` holds from now on; before the engine starts."""
        self._look = look
        self._ledger = Ledger(manager.page_size)
        watch_residency(manager, self.hear)
        self._thread.start()

    def hear(self, event: Residence) -> None:
        """See ``residency.Listener``."""
        if len(self._waiting) >= self._most:
            self._overflowed = True
            self._given_up += 1
            return
        self._waiting.append(event)
        if not self._awake:
            self._wake()

    def _wake(self) -> None:
        self._awake = True
        try:
            self._wake_in.send(b"!")
        except OSError:  # it was woken often enough, or has ended
            return

    def close(self, timeout_s: float) -> None:
        """Tell what waits, for at most so long, and end."""
        self._closing = True
        if not self._thread.is_alive():
            self._end()
            return
        self._wake()
        self._thread.join(timeout_s)

    # -- its thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._start_over()
            while not self._closing:
                self._wait()
                self._turn()
            self._publish_waiting()
        except Exception:
            logger.exception("events are published no more")
            self._trouble = "the publisher stopped after an internal error"
            self._most = 0
            self._waiting.clear()
        finally:
            self._end()

    def _end(self) -> None:
        self._sockets.close()
        self._wake_in.close()
        self._wake_out.close()

    def _wait(self) -> None:
        """Until there is something to tell or to answer, and then a moment more."""
        poller = zmq.Poller()
        poller.register(self._wake_out.fileno(), zmq.POLLIN)
        for source in self._sockets.sources():
            poller.register(source, zmq.POLLIN)
        found = dict(poller.poll(1000 * _RETRY_S if self._sockets.missing else None))
        if self._wake_out.fileno() in found:
            self._wake_out.recv(4096)
            if not self._closing:
                time.sleep(_GATHER_S)
        self._awake = False

    def _turn(self) -> None:
        if self._sockets.missing:
            self._try_to_open()
        newcomer = self._sockets.serve(self._kept)
        if self._overflowed:
            logger.warning("events were given up because more than %d waited; all pages are told anew", self._most)
            self._next += 1  # readers see that something is missing
            self._waiting.clear()
            self._overflowed = False
            newcomer = True
        if newcomer:
            self._start_over()
        if not self._sockets.missing:
            self._trouble = None if self._sockets.heard else f"nobody reads at {self._sockets.events.given}"
        self._publish_waiting()

    def _try_to_open(self) -> None:
        try:
            self._sockets.open()
        except SettingsError as error:
            self._trouble = str(error)
            return
        logger.info("events are published at %s", ", ".join(self.addresses))
        self._start_over()

    def _start_over(self) -> None:
        """Readers are told that there is nothing, and then everything that there is."""
        self._publish(self._ledger.start_over())
        assert self._look is not None
        self._look(self._tell_all)

    def _tell_all(self, manager: CacheManager) -> None:
        """On the engine's thread."""
        self._waiting.append(list(residents(manager)))  # as one, however many they are
        self._wake()

    def _publish_waiting(self) -> None:
        taken: list[Residence] = []
        while self._waiting:
            found = self._waiting.popleft()
            taken += found if isinstance(found, list) else [found]
        events = self._ledger.settle(taken)
        if events:
            self._publish(events)

    def _publish(self, events: Sequence[Event]) -> None:
        if not self._sockets.heard:
            return
        message = pack(self._next, events, self._layout)
        self._next += 1
        self._kept.add(message)
        self._sockets.send(message)
