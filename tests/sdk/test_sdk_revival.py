"""A session that its server lost, after a restart for instance; and how long each call waits for a server."""

from __future__ import annotations

import asyncio
import math

import pytest
import sdk_wire
from sdk_wire import WireServer
from wire_sessions import Held

from agentcache_sdk import AsyncClient, Client, NotFound, Timeout

SYSTEM = "You are a careful engineer. " * 8


def _lost(held: Held) -> None:
    """As after a restart: sessions are gone, snapshots are on disk."""
    held.sessions.clear()


@pytest.mark.parametrize(
    "use", ["send", "stream", "fork", "rollback", "pin", "unpin", "explain", "snapshot", "waiting"]
)
def test_a_lost_session_goes_on_from_a_snapshot_that_has_all_of_it(
    wire: WireServer, held: Held, client: Client, use: str
) -> None:
    with client.session(SYSTEM, metadata={"job": 1}, ignore="AC8") as session:
        session.send("one")
        session.snapshot("here")
        known = session.id
        _lost(held)
        if use == "waiting":
            with session.waiting("pytest"):
                pass
        elif use == "stream":
            with session.stream("two") as stream:
                stream.result()
        else:
            arguments: dict[str, tuple[object, ...]] = {"send": ("two",), "rollback": (0,), "snapshot": ("there",)}
            getattr(session, use)(*arguments.get(use, ()))
        assert session.id != known and next(iter(held.sessions)) == session.id
        assert held.created[-1] == {"from_snapshot": "here", "metadata": {"job": 1}}
        assert "had lost the session; it goes on from the snapshot 'here'" in str(session.report())
        session.send("and on")
    assert wire.prompts[-1]["messages"][0]["content"] == SYSTEM


def test_a_snapshot_that_lacks_a_turn_is_not_taken_for_the_session(held: Held, client: Client) -> None:
    with client.session(SYSTEM) as session:
        session.snapshot("here")
        session.send("one")
        _lost(held)
        with pytest.raises(NotFound, match=r"client\.session"):
            session.send("two")


def test_as_many_turns_as_in_the_snapshot_are_not_enough(held: Held, client: Client) -> None:
    with client.session(SYSTEM) as session:
        session.send("one")
        session.snapshot("here")
        (fork,) = session.fork(at_turn=0)
        fork.send("another one")
        session.rollback(0)
        session.send("a third one")
        _lost(held)
        for lost in (session, fork):
            with pytest.raises(NotFound):
                lost.send("two")


def test_a_snapshot_that_somebody_replaced_is_left_alone(held: Held, client: Client) -> None:
    with client.session(SYSTEM) as session, client.session(SYSTEM) as other:
        session.send("one")
        session.snapshot("here")
        other.snapshot("here")
        _lost(held)
        with pytest.raises(NotFound):
            session.send("two")
        assert not held.sessions, "what was restored by mistake is given back"


def test_a_restored_session_survives_another_restart(held: Held, client: Client) -> None:
    with client.session(SYSTEM) as session:
        session.send("one")
        session.snapshot("here")
    with client.restore("here", ignore="AC8") as restored:
        _lost(held)
        restored.send("two")
        assert restored.mark() == 2


def test_the_asynchronous_twin_goes_on_from_a_snapshot_too(wire: WireServer, held: Held) -> None:
    async def main() -> int:
        async with AsyncClient(wire.url) as client, client.session(SYSTEM, ignore="AC8") as session:
            await session.send("one")
            await session.snapshot("here")
            _lost(held)
            async with session.stream("two") as stream:
                await stream.result()
            await session.snapshot("there")
            _lost(held)
            await session.send("three")
            return session.mark()

    assert asyncio.run(main()) == 3


def test_each_call_has_its_own_timeout(wire: WireServer, held: Held, client: Client) -> None:
    session = client.session(SYSTEM).open()
    wire.faults.append(sdk_wire.hang)
    with pytest.raises(Timeout):
        session.send("one", timeout=0.2)
    wire.faults.append(sdk_wire.hang)
    with pytest.raises(Timeout):
        client.chat([{"role": "user", "content": "Hi"}], timeout=0.2)
    wire.faults.append(sdk_wire.hang)
    with pytest.raises(Timeout), client.stream_chat([{"role": "user", "content": "Hi"}], timeout=0.2) as stream:
        stream.result()
    with pytest.raises(ValueError, match=r"timeout: got 0, expected seconds above 0, or math\.inf"):
        session.send("one", timeout=0)
    session.send("one", timeout=math.inf)
    assert session.mark() == 1
