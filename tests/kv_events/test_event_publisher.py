"""The publisher's sockets and thread: replays, readers that come late, queues that run over, addresses that come free."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import zmq
from cache_life import SIZE, CacheLife
from event_reader import View, reading, replayed
from waiting import wait_until

from agentcache.cache.manager import CacheManager
from agentcache.errors import SettingsError
from agentcache.kv_events.format import Message, block_hash
from agentcache.kv_events.opening import open_events
from agentcache.kv_events.publisher import EventPublisher
from agentcache.kv_events.replay import ReplayBuffer
from agentcache.settings import Settings

ANY = "tcp://127.0.0.1:*"


def opened(**settings: Any) -> EventPublisher:
    publisher = open_events(Settings(model="none", **{"kv_events": ANY, **settings}))
    assert publisher is not None
    return publisher


class Engine:
    """A cache with a life of its own and a publisher that follows it; whoever calls ``step`` is the engine's thread."""

    def __init__(self, seed: int, publisher: EventPublisher) -> None:
        self.life = CacheLife(seed, None)
        self.publisher = publisher
        self._looks: list[Callable[[CacheManager], None]] = []
        publisher.follow(self.life.manager, self._looks.append)

    def steps(self, count: int) -> None:
        for _ in range(count):
            while self._looks:
                self._looks.pop()(self.life.manager)
            self.life.step()

    def step_until(self, holds: Callable[[], Any], wait_s: float = 20) -> None:
        deadline = time.monotonic() + wait_s
        while not holds():
            assert time.monotonic() < deadline
            self.steps(1)

    def agrees(self, view: View) -> bool:
        """Whether a reader knows of exactly what is so."""
        while self._looks:
            self._looks.pop()(self.life.manager)
        held = self.life.held()
        told = {tier: {block_hash(key) for key in held[tier]} for tier in ("device", "host")}
        return (view.hashes("GPU"), view.hashes("CPU")) == (told["device"], told["host"])


@contextmanager
def following(seed: int, publisher: EventPublisher) -> Iterator[Engine]:
    try:
        yield Engine(seed, publisher)
    finally:
        publisher.close(5)


def test_replays_tell_everything_from_the_first_batch_on():
    with following(1, opened(kv_events_replay=ANY)) as engine:
        replay = engine.publisher.addresses[1]
        view = View(SIZE)
        for _ in range(3):
            engine.steps(20)
            wait_until(lambda: view.catch_up(replay) or engine.agrees(view))
        assert view.events[0] == {"type": "AllBlocksCleared"}
        assert replayed(replay, view.next) == []
        first = replayed(replay, 0)[0][0]
        assert [sequence for sequence, _ in replayed(replay, first + 2)] == list(range(first + 2, view.next))


def test_a_reader_that_comes_late_learns_what_it_missed_by_replay_and_then_follows():
    with following(2, opened(kv_events_replay=ANY)) as engine:
        events, replay = engine.publisher.addresses
        engine.steps(30)
        with reading(events, SIZE) as reader:
            engine.step_until(lambda: reader.socket.poll(10))
            _, number, payload = reader.socket.recv_multipart()
            first = int.from_bytes(number, "big")
            for sequence, missed in replayed(replay, 0):
                if sequence < first:
                    reader.view.take(sequence, missed)
            reader.view.take(first, payload)
            for _ in range(4):
                engine.steps(15)
                reader.until(lambda: engine.agrees(reader.view))


def test_events_are_published_under_the_topic():
    with following(3, opened(kv_events_topic="kv@pod-1@model")) as engine:
        for topic in ("kv@", "kv@pod-1@model"):
            with reading(engine.publisher.addresses[0], SIZE, topic) as reader:
                engine.step_until(lambda found=reader: found.socket.poll(10))
                assert reader.socket.recv_multipart()[0] == b"kv@pod-1@model"


def test_a_queue_that_runs_over_leaves_a_number_out_and_everything_is_told_anew():
    ready = opened(kv_events_replay=ANY)
    publisher = EventPublisher(ready._sockets, queue=5)
    with following(4, publisher) as engine:
        engine.step_until(lambda: publisher.given_up)
        replay = publisher.addresses[1]

        def told_since_the_gap() -> bool:
            batches = replayed(replay, 0)
            behind = [b for (a, _), (b, _) in itertools.pairwise(batches) if b != a + 1]
            if not behind:
                return False
            view = View(SIZE, late=True)
            for sequence, payload in batches:
                if sequence >= behind[-1]:
                    view.take(sequence, payload)
            return engine.agrees(view)

        wait_until(told_since_the_gap)


def test_an_address_that_is_taken_is_an_error_or_waited_for():
    other: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
    port = other.bind_to_random_port("tcp://127.0.0.1")
    address = f"@tcp://127.0.0.1:{port}"
    with pytest.raises(SettingsError, match=f"--kv-events {address}: Address already in use"):
        opened(kv_events=address)
    with following(5, opened(kv_events=address, kv_events_replay=ANY, store_optional=True)) as engine:
        engine.steps(30)
        assert "Address already in use" in str(engine.publisher.trouble())
        other.close(0)
        wait_until(lambda: engine.publisher.trouble() is None)
        view = View(SIZE, late=True)
        replay = next(a for a in engine.publisher.addresses if not a.endswith(f":{port}"))
        wait_until(lambda: view.catch_up(replay) or engine.agrees(view))


def test_a_reader_that_is_connected_to_is_told_everything_whenever_it_comes():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    with pytest.raises(SettingsError, match=rf"--kv-events {address}: .*nobody answers.*@{address}"):
        opened(kv_events=address)
    with following(6, opened(kv_events=address, store_optional=True)) as engine:
        engine.steps(30)
        assert "nobody answers" in str(engine.publisher.trouble())
        for _ in range(2):
            with reading(address, SIZE, bind=True, late=True) as reader:
                reader.until(lambda found=reader: engine.agrees(found.view))
                assert {"type": "AllBlocksCleared"} in reader.view.events
                engine.steps(20)
                reader.until(lambda found=reader: engine.agrees(found.view))
                assert engine.publisher.trouble() is None
            wait_until(lambda: "nobody reads" in str(engine.publisher.trouble()))


def test_requests_that_are_none_are_passed_over():
    with following(7, opened(kv_events_replay=ANY)) as engine:
        engine.steps(10)
        replay = engine.publisher.addresses[1]
        asking: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        asking.connect(replay)
        for frames in ([b"", b"1"], [b"x"], [b"", b"", b"12345678"], [b"a", b"12345678"]):
            asking.send_multipart(frames)
        wait_until(lambda: replayed(replay, 0))
        assert not asking.poll(50)
        asking.close(0)


def test_the_publisher_ends_at_once_and_leaves_its_address():
    publisher = opened()
    with following(8, publisher) as engine:
        engine.steps(10)
        address = publisher.addresses[0]
    engine.steps(10)  # what still happens is heard by nobody
    again: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
    wait_until(lambda: _binds(again, address))
    again.close(0)
    assert "agentcache-events" not in {thread.name for thread in threading.enumerate()}


def _binds(made: zmq.Socket[bytes], address: str) -> bool:
    try:
        made.bind(address)
    except zmq.ZMQError:
        return False
    return True


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("5557", "expected an address that begins with one of tcp://, ipc://, inproc://"),
        ("http://x:1", "expected an address that begins with one of"),
        ("tcp://", "expected an address that begins with one of"),
        ("tcp://host", "expected tcp://HOST:PORT with a port from 1 to 65535"),
        ("tcp://host:99999", "port from 1 to 65535"),
        ("tcp://*", "(* picks a free one), such as tcp://*:5557 to listen on every address"),
        ("tcp://ho st:1", "expected tcp://HOST:PORT"),
        (">tcp://*:5557", "no address that can be connected to"),
        ("tcp://no-such-interface.invalid:*", "--kv-events tcp://no-such-interface.invalid:*: "),
        ("ipc:///no/such/folder/events", "--kv-events ipc:///no/such/folder/events: "),
    ],
)
def test_addresses_that_are_none_are_refused(address, says):
    with pytest.raises(SettingsError) as caught:
        opened(kv_events=address, store_optional=not says.startswith("--"))
    assert says in str(caught.value)


def test_a_file_that_somebody_listens_at_is_not_taken_away(tmp_path):
    address = f"ipc://{tmp_path}/events"
    first = opened(kv_events=address)
    with pytest.raises(SettingsError, match="another process listens there"):
        opened(kv_events=address)
    first.close(1)


def test_replays_are_bounded_by_number_and_by_size():
    few, small = ReplayBuffer(batches=3), ReplayBuffer(size=100)
    for number in range(8):
        message = Message(number.to_bytes(8, "big"), bytes(40))
        few.add(message)
        small.add(message)
    assert [message.sequence[-1] for message in few.since(0)] == [5, 6, 7]
    assert [message.sequence[-1] for message in small.since(7)] == [7] and len(small) == 2
