"""A server that is stopped and started again on the same port, connections cut at any byte, tasks cancelled at any moment."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sdk_wire
from cutting_proxy import Cut, cutting_proxy
from live import LiveServer, drain, live_server
from sdk_wire import WireServer
from test_sdk_sessions_live import IDS, Reference, ids, reference, tiny  # noqa: F401  fixtures
from wire_sessions import Held

from agentcache_sdk import AgentCacheError, AsyncClient, Client, ConnectionFailed, NotFound, Session, Timeout
from agentcache_sdk._replies import _seconds

pytestmark = pytest.mark.filterwarnings("ignore::agentcache_sdk.CacheWarning")  # a new process has computed nothing yet
HEAD = ids(60, "head")
FORCED = {"tool_choice": {"type": "function", "function": {"name": "add"}}, "max_tokens": 40, "temperature": 0}


class Restarts:
    """A server that can be killed and come back at its address."""

    def __init__(self, model: Path, disk: Path) -> None:
        self._model, self._disk = model, disk
        self._port = 0
        self._context: Any = None
        self.start()

    def start(self) -> None:
        self._context = live_server(self._model, port=self._port, num_pages=256, disk_dir=self._disk)
        self.server: LiveServer = self._context.__enter__()
        self._port = self.server.port

    def stop(self) -> None:
        self._context.__exit__(None, None, None)

    def again(self) -> None:
        self.stop()
        self.start()


@pytest.fixture
def restarts(tiny: tuple[Path, Any], tmp_path: Path) -> Any:  # noqa: F811
    made = Restarts(tiny[0], tmp_path)
    yield made
    drain(made.server)
    made.stop()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def later(text: str) -> str:
    """Comes later."""
    return text


def agrees(server: LiveServer, session: Session) -> None:
    info = server.http.get(f"/v1/sessions/{session.id}?include=messages").json()
    assert list(session.messages) == info["messages"] and len(info["turns"]) == session.mark()


def test_a_session_survives_restarts_in_the_middle_of_everything(restarts: Restarts) -> None:
    with Client(restarts.server.url, timeout=20) as client, client.session("Be brief.", [add]) as session:
        session.send("One.", max_tokens=4)
        session.snapshot("kept")
        (fork,) = session.fork()
        restarts.again()
        with session.stream("Two.", max_tokens=4) as stream:
            stream.result()
        fork.send("Two, in the fork.", max_tokens=4)
        session.adopt(fork)
        agrees(restarts.server, session)

        # A reply that calls a tool, the result still to be sent, and a tool that is still to be added.
        (call,) = session.send("Add.", **FORCED).tool_calls
        session.snapshot("kept")
        session.tool_result(call.id, 5)
        session.add_tools(later)
        restarts.again()
        with session.waiting("add", 1):
            pass
        assert session.send(max_tokens=4).text is not None
        assert [m["role"] for m in session.messages][-2:] == ["tool", "assistant"]
        agrees(restarts.server, session)

        # In the middle of a stream: one error, and the turn was never there.
        session.snapshot("kept")
        before = session.messages
        with session.stream("Go on and on.", max_tokens=1500) as stream:
            next(stream)
            restarts.again()
            with pytest.raises(AgentCacheError):
                stream.result()
        assert session.messages == before
        together: list[Callable[[], Any]] = [lambda: session.send("On.", max_tokens=4), session.explain, session.pin]
        failures: list[BaseException] = []

        def one(act: Callable[[], Any]) -> None:
            try:
                act()
            except BaseException as error:  # noqa: BLE001  told to the test
                failures.append(error)

        threads = [threading.Thread(target=one, args=(act,)) for act in together]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert failures == [] and len(client.sessions()) == 1
        agrees(restarts.server, session)


def test_a_run_whose_server_restarts_while_a_tool_works_goes_on(restarts: Restarts) -> None:
    async def main() -> None:
        async with AsyncClient(restarts.server.url, timeout=20) as client:
            holder: list[Any] = []

            async def slow(n: int) -> int:
                """Takes its time."""
                await holder[0].snapshot("kept")
                await asyncio.to_thread(restarts.again)
                return n

            forced = {**FORCED, "tool_choice": {"type": "function", "function": {"name": "slow"}}}
            async with client.session("Be brief.", [slow]) as session:
                holder.append(session)
                result = await session.run("Go.", max_turns=2, **forced)
                assert (len(result.turns), len(result.tool_runs), session.mark()) == (2, 1, 2)

    asyncio.run(main())


def test_without_a_snapshot_a_restart_is_one_clear_error(restarts: Restarts) -> None:
    with Client(restarts.server.url, timeout=20) as client, client.session("Be brief.") as session:
        session.send("One.", max_tokens=4)
        restarts.again()
        for _ in range(2):
            with pytest.raises(NotFound, match=r"client\.session\(messages=session\.messages\)"):
                session.send("Two.", max_tokens=4)
        with client.session(messages=session.messages) as revived:
            revived.send("Two.", max_tokens=4)
            agrees(restarts.server, revived)


def lives(
    server: LiveServer, url: str, seeds: range, expected: Reference, cut: Callable[[random.Random], None]
) -> None:
    with Client(url, timeout=20, max_retries=0) as client:
        session = client.session(prompt=HEAD).open()
        known, turns = HEAD, 0
        for seed in seeds:
            chance = random.Random(seed)
            new, streamed = ids(1 + seed % 7, seed), chance.random() < 0.6
            cut(chance)
            try:
                if streamed:
                    with session.stream(new, max_tokens=8, **IDS) as stream:
                        turn = stream.result()
                else:
                    turn = session.send(new, max_tokens=8, **IDS)
            except ConnectionFailed:
                assert session.mark() == turns, "as before"
                continue
            assert turn.usage.prompt_tokens == len(known) + len(new)
            assert turn.token_ids == expected(known + new, 8)
            known, turns = known + new + (turn.token_ids or []), turns + 1
        session.close()
        drain(server)


def cuts_anywhere(restarts: Restarts, seeds: range, reference: Reference) -> None:  # noqa: F811
    with cutting_proxy(restarts.server.port) as proxy:

        def cut(chance: random.Random) -> None:
            way = chance.choice(["up", "down"])
            after = chance.randrange(0, 500 if way == "up" else 3000)
            proxy.cut(Cut(way, after, chance.random() < 0.5) if chance.random() < 0.7 else None)

        lives(restarts.server, proxy.url, seeds, reference, cut)


def test_connections_cut_at_any_byte_leave_the_session_as_it_was(
    restarts: Restarts, reference: Reference  # noqa: F811
) -> None:  # fmt: skip
    cuts_anywhere(restarts, range(40), reference)


@pytest.mark.long
def test_connections_cut_at_any_byte_for_long(restarts: Restarts, reference: Reference) -> None:  # noqa: F811
    for beginning in range(1000, 1600, 60):
        cuts_anywhere(restarts, range(beginning, beginning + 60), reference)


def test_tasks_cancelled_at_any_moment_free_their_pages_and_leave_a_session_that_goes_on(restarts: Restarts) -> None:
    async def main() -> None:
        chance = random.Random(1)
        async with AsyncClient(restarts.server.url, timeout=20) as client:
            session = await client.session("Be brief.", [add]).open()
            await session.send("Hello.", max_tokens=4)
            for n in range(36):
                (fork,) = await session.fork()
                await fork.send("From the fork.", max_tokens=2)

                async def streamed(session: Any = session) -> None:
                    async with session.stream("And on.", max_tokens=300) as stream:
                        await stream.result()

                acts: list[Callable[[], Any]] = [
                    lambda: session.send("On.", max_tokens=300),
                    streamed,
                    lambda: session.run("Add.", max_turns=2, **FORCED),
                    session.fork,
                    lambda fork=fork: session.adopt(fork),
                    lambda: session.compact(keep_turns=0, max_tokens=8),
                    lambda n=n: client.prewarm(f"Another beginning, number {n}."),
                    lambda: session.snapshot("kept"),
                    lambda: session.rollback(min(1, session.mark())),
                ]
                task = asyncio.ensure_future(acts[n % len(acts)]())
                await asyncio.sleep(chance.random() * 0.03)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                for call in session._core.open_tool_calls():
                    session.tool_result(call.id, "cancelled")
                turn = await session.send("Still there?", max_tokens=2)
                assert turn.usage.prompt_tokens > 0
                await asyncio.to_thread(agrees, restarts.server, session)
                await fork.close()
                if session.mark() > 5:
                    await session.rollback(1)
            await session.close()

    asyncio.run(main())
    drain(restarts.server)


def test_a_turns_timeout_holds_for_what_it_asks_before_it(wire: WireServer) -> None:
    wire.held = Held()
    with Client(wire.url, timeout=60) as client:
        session = client.session("Be brief.")
        for _ in range(3):  # to open the session, the turn, to settle that turn
            wire.faults.append(sdk_wire.hang)
            with pytest.raises(Timeout):
                session.send("Hello.", timeout=0.1)
        session.send("Hello.")


def test_a_date_to_come_back_at_is_in_gmt_whether_it_says_so_or_not() -> None:
    for date in ("Wed, 21 Oct 2065 07:28:00 GMT", "Wed, 21 Oct 2065 07:28:00 -0000", "Wed Oct 21 07:28:00 2065"):
        seconds = _seconds(date)
        assert seconds is not None and abs(seconds - (_seconds("Wed, 21 Oct 2065 07:28:00 GMT") or 0)) < 5
    assert _seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert [_seconds(odd) for odd in ("soon", "nan", "inf", "", None, "Wed, 99 Oct 2065 07:28:00 GMT")] == [None] * 6
