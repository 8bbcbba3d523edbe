"""What an ingress makes of what replicas say of themselves, and of those that say nothing.  No replica is needed for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from agentcache.ray.exchange import Sent
from agentcache.ray.parts import Call, News, NoReplicaError, Part, Whole
from agentcache.ray.replica import EngineReplica
from agentcache.ray.steering import AT_ONCE, Steering, Trip
from agentcache.routing.feed import KEY_BYTES, Cursor, FeedDelta
from agentcache.routing.keys import RoutingKey
from agentcache.routing.requests import Kind, ReadRequest
from agentcache.routing.router import PrefixRouter, RoutingPolicy
from agentcache.settings import Settings

NAMES = ("r1", "r2")


class Speakers:
    """``Replicas`` that only say how they are."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.sick: set[str] = set()

    async def news(self, cursors: Mapping[str, Cursor]) -> list[News]:
        delta = FeedDelta(None, Cursor(1, 0), whole=True)
        return [
            News(name, delta, name not in self.sick, "an engine that failed", {})
            for name in NAMES
            if name not in self.silent
        ]

    def ask(self, call: Call) -> AsyncIterator[Sequence[Part]]:
        raise AssertionError("nobody asks these replicas for an answer")

    async def ask_all(self, sent: Sent) -> list[Whole]:
        return []

    async def profile(self) -> Any:
        raise NoReplicaError("none")


def homes(steering: Steering) -> set[str | None]:
    """Of many conversations that begin."""
    keys = [RoutingKey((bytes([number]) * 16,), 16) for number in range(64)]
    return {homed(steering, key) for key in keys}


def homed(steering: Steering, key: RoutingKey) -> str | None:
    trip = Trip(steering.router, Sent("GET", b"/", ()), key)
    trip.choose(NAMES)  # Ray lists all of them
    chosen = trip.chosen
    trip.over()
    return chosen


@pytest.mark.parametrize("trouble", ["sick", "silent"])
def test_a_replica_in_trouble_gets_no_new_conversations_until_it_is_well_again(trouble):
    async def scenario() -> None:
        speakers = Speakers()
        steering = Steering(speakers, RoutingPolicy())
        await steering.look()
        assert homes(steering) == {"r1", "r2"}
        getattr(speakers, trouble).add("r1")
        await steering.look()
        assert homes(steering) == {"r2"}
        getattr(speakers, trouble).clear()
        await steering.look()
        assert homes(steering) == {"r1", "r2"}

    asyncio.run(scenario())


def test_sessions_of_a_replica_that_hangs_go_elsewhere_though_it_is_listed():
    async def scenario() -> None:
        speakers = Speakers()
        steering = Steering(speakers, RoutingPolicy())
        await steering.look()
        session = RoutingKey(sticky="r1", affinity=b"sess_x-r1")
        assert homed(steering, session) == "r1"
        speakers.silent.add("r1")
        await steering.look()
        assert homed(steering, session) == "r2" and steering.hangs("r1") and not steering.hangs("r2")

    asyncio.run(scenario())


class LateSpeakers(Speakers):
    """What they say arrives when it is let through; the first has more to say than is learned on the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.through = asyncio.Event()

    async def news(self, cursors: Mapping[str, Cursor]) -> list[News]:
        first, *others = await super().news(cursors)
        self.asked.set()
        await self.through.wait()
        much = FeedDelta(None, Cursor(1, 0), bytes(KEY_BYTES * (AT_ONCE + 1)), whole=True)
        return [first._replace(delta=much), *others]


@pytest.mark.parametrize("when", ["they are asked", "what another said is learned"])
def test_a_replica_that_dies_while_all_are_looked_at_is_not_taken_for_one_that_lives(when):
    async def scenario() -> None:
        speakers, lines = LateSpeakers(), []
        steering = Steering(speakers, RoutingPolicy(), lambda name, dead: lines.append((name, dead)))
        speakers.through.set()
        await steering.look()
        speakers.through.clear()
        speakers.asked.clear()
        looking = asyncio.ensure_future(steering.look())
        await speakers.asked.wait()
        if when == "they are asked":
            steering.lost("r2")
        else:
            learned = steering.router.apply
            loop = asyncio.get_running_loop()

            async def die() -> None:
                steering.lost("r2")

            def apply(replica: str, delta: FeedDelta) -> bool:
                asyncio.run_coroutine_threadsafe(die(), loop).result(30)
                return learned(replica, delta)

            steering.router.apply = apply  # type: ignore[method-assign]
        speakers.through.set()
        await looking
        assert set(steering.known) == {"r1"} and homes(steering) == {"r1"} and lines == [("r2", True)]

    asyncio.run(scenario())


def test_a_choice_that_comes_when_nobody_waits_any_more_counts_for_nothing():
    router = PrefixRouter()
    trip = Trip(router, Sent("GET", b"/", ()), RoutingKey((bytes(16),), 100))
    assert trip.choose(["r1"]) == [["r1"]] and router.load("r1").tokens == 100
    trip.over()
    with pytest.raises(NoReplicaError, match="nobody waits"):
        trip.choose(["r1"])
    assert trip.chosen is None and router.load("r1").tokens == 0


class Reader:
    def __init__(self) -> None:
        self.paths: list[str] = []

    def read(self, method: str, path: str, headers: Any = (), body: bytes = b"") -> ReadRequest:
        self.paths.append(path)
        return ReadRequest(Kind.ANY, RoutingKey())


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_paths_are_read_as_the_replica_will_read_them(body):
    steering = Steering(Speakers(), RoutingPolicy())
    reader = steering._reader = Reader()  # type: ignore[assignment]
    asyncio.run(steering.read(Sent("POST", b"/v1/%63hat/completions?x=%41", (), body)))
    assert reader.paths == ["/v1/chat/completions"]


class LongStep:
    """An engine in the middle of a step that does not end."""

    neighbours = ()

    def healthy(self) -> tuple[bool, str]:
        return True, ""

    async def look(self, look: Any) -> Any:
        await asyncio.Event().wait()


def test_a_replica_speaks_during_a_step_that_takes_long():
    async def scenario() -> None:
        replica = EngineReplica(Settings(replica="r1"))
        replica._engine = LongStep()  # type: ignore[assignment]
        for _ in range(3):
            told = await asyncio.wait_for(replica.news({}), 30)
            assert told.healthy and told.replica == "r1"
        assert len(asyncio.all_tasks()) == 2, "one look at the load, however often it is asked for"

    asyncio.run(scenario())
