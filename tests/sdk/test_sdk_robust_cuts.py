"""Stop buttons and pins through every kind of client: against Hugging Face's ids, and the gauges of the server."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live import LiveServer, drain, live_server
from test_sdk_sessions_live import IDS, PAGE, Reference, advance, flood, ids, reference, tiny  # noqa: F401  fixtures

from agentcache import LocalClient
from agentcache_sdk import AgentCacheError, AsyncClient, Busy, Client, Turn

HEAD, SAID, MORE = ids(512, "head"), ids(64, "said"), ids(64, "more")


@pytest.fixture(scope="module")
def server(tiny: tuple[Path, Any]) -> Iterator[LiveServer]:  # noqa: F811
    with live_server(tiny[0], num_pages=256) as server:
        yield server


@pytest.fixture
def small(tiny: tuple[Path, Any]) -> Iterator[LiveServer]:  # noqa: F811
    with live_server(tiny[0], num_pages=40) as server:
        yield server
        drain(server)


def right_after_a_cut(turn: Turn, first: Turn, reference: Reference) -> None:  # noqa: F811
    known = HEAD + (first.token_ids or [])
    assert turn.usage.prompt_tokens == len(known) + 64 == 624
    assert turn.usage.cached_tokens >= 544
    assert turn.token_ids == reference(known + MORE, 16)


@pytest.mark.parametrize("cut", ["after the first piece", "and later", "before the first piece"])
def test_an_asynchronous_turn_that_was_cut_leaves_no_trace(
    server: LiveServer, reference: Reference, cut: str  # noqa: F811
) -> None:  # fmt: skip
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            for _ in range(10):
                async with client.session(prompt=HEAD) as session:
                    first = await session.send(max_tokens=48, **IDS)
                    async with session.stream(SAID, max_tokens=400, **IDS) as stream:
                        if cut != "before the first piece":
                            await anext(stream)
                    if cut == "and later":
                        await asyncio.sleep(0.2)
                    right_after_a_cut(await session.send(MORE, max_tokens=16, **IDS), first, reference)
                    assert session.mark() == len((await session.explain()).turns) == 2

    asyncio.run(main())
    drain(server)


@pytest.mark.parametrize("cut", ["after the first piece", "before the first piece"])
def test_a_turn_that_was_cut_without_a_server_beside_it_leaves_no_trace(
    tiny: tuple[Path, Any], reference: Reference, cut: str  # noqa: F811
) -> None:  # fmt: skip
    with LocalClient(str(tiny[0]), device="cpu", dtype="float32", threads=1, num_pages=128) as client:
        for _ in range(10):
            with client.session(prompt=HEAD) as session:
                first = session.send(max_tokens=48, **IDS)
                with session.stream(SAID, max_tokens=400, **IDS) as stream:
                    if cut != "before the first piece":
                        next(stream)
                right_after_a_cut(session.send(MORE, max_tokens=16, **IDS), first, reference)
        assert client.cache().live == 0


def outcomes(acts: list[Callable[[], Turn]]) -> list[Turn | BaseException]:
    """What comes of doing things at once."""
    gate, came = threading.Barrier(len(acts)), []

    def one(act: Callable[[], Turn]) -> None:
        gate.wait(5)
        try:
            came.append(act())
        except AgentCacheError as error:
            came.append(error)

    threads = [threading.Thread(target=one, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return came


def test_of_two_turns_at_once_on_one_handle_one_is_refused_and_they_never_mix(
    server: LiveServer, reference: Reference  # noqa: F811
) -> None:  # fmt: skip
    head = ids(40, "two")
    with Client(server.url) as client:
        for _ in range(10):
            with client.session(prompt=head) as session:
                session.open()
                acts = [lambda new=new: session.send(new, max_tokens=60, **IDS) for new in (SAID[:9], MORE[:9])]
                done = [one for one in outcomes(acts) if isinstance(one, Turn)]
                assert 1 <= len(done) == session.mark() <= 2
                known = head
                for turn in sorted(done, key=lambda turn: turn.usage.prompt_tokens):
                    new = turn.raw.get("prompt_token_ids") or []
                    said = [part for part in (SAID[:9], MORE[:9]) if not new or new[-9:] == part]
                    assert any(turn.token_ids == reference(known + part, 60) for part in said)
                    known = known + next(p for p in said if turn.token_ids == reference(known + p, 60))
                    known = known + (turn.token_ids or [])
    drain(server)


def test_of_two_tasks_on_one_session_one_is_refused(server: LiveServer, reference: Reference) -> None:  # noqa: F811
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            for _ in range(10):
                async with client.session(prompt=HEAD) as session:
                    parts = (SAID, MORE)
                    done = await asyncio.gather(
                        *(session.send(part, max_tokens=8, **IDS) for part in parts), return_exceptions=True
                    )
                    assert [type(one) for one in done] == [Turn, Busy]
                    assert isinstance(done[0], Turn) and done[0].token_ids == reference(HEAD + SAID, 8)
                    assert (await session.send(MORE, max_tokens=1)).usage.prompt_tokens == 512 + 64 + 8 + 64

    asyncio.run(main())
    drain(server)


def test_closing_a_session_from_elsewhere_ends_the_turn_that_runs(server: LiveServer) -> None:
    with Client(server.url) as client:
        for n in range(10):
            session = client.session(prompt=ids(64, "closed")).open()

            def close_soon(session: Any = session, wait_s: float = 0.004 * n) -> Any:
                time.sleep(wait_s)
                return session.close()

            came = outcomes([lambda s=session: s.send(max_tokens=1500, **IDS), close_soon])
            assert any(isinstance(one, AgentCacheError) for one in came), came
            drain(server)
        assert client.sessions() == []

    async def main() -> None:
        async with AsyncClient(server.url) as client:
            for n in range(10):
                session = await client.session(prompt=ids(64, "closed")).open()
                turn = asyncio.ensure_future(session.send(max_tokens=1500, **IDS))
                await asyncio.sleep(0.003 * n)
                await session.close()
                with pytest.raises(AgentCacheError):
                    await turn
            assert await client.sessions() == []

    asyncio.run(main())
    drain(server)


def gauge(server: LiveServer) -> int:
    """Pinned pages as the metrics tell them."""
    for line in server.http.get("/metrics").text.splitlines():
        if line.startswith("agentcache_pages{") and 'state="pinned"' in line:
            return int(float(line.split()[-1]))
    raise AssertionError("no gauge of pinned pages")


def test_pages_of_a_pin_that_ended_can_be_evicted_though_nobody_looked(small: LiveServer) -> None:
    async def main() -> None:
        async with AsyncClient(small.url) as client, client.session(prompt=ids(10 * PAGE, "pin")) as session:
            await session.send(max_tokens=1)
            pin = await session.pin(ttl=60)
            assert pin.granted_pages == gauge(small) == 10
            await asyncio.to_thread(flood, small, "before")
            (fork,) = await session.fork(at_turn=0)
            assert (await fork.send(ids(1, "hit"), max_tokens=1)).usage.cached_tokens >= 10 * PAGE
            advance(small, 61)
            await asyncio.to_thread(flood, small, "after")
            (late,) = await session.fork(at_turn=0)
            assert (await late.send(ids(1, "miss"), max_tokens=1)).usage.cached_tokens == 0
            assert gauge(small) == 0

    asyncio.run(main())


def test_a_process_that_dies_with_a_pin_gives_its_pages_back(small: LiveServer) -> None:
    program = (
        "import os, sys; from agentcache_sdk import Client\n"
        "session = Client(sys.argv[1]).session(prompt=eval(sys.argv[2])); session.send(max_tokens=1)\n"
        "session.pin(ttl=60); os.kill(os.getpid(), 9)"
    )
    prompt = ids(10 * PAGE, "dies")
    done = subprocess.run([sys.executable, "-c", program, small.url, repr(prompt)], check=False, timeout=60)
    assert done.returncode == -9 and gauge(small) == 10
    flood(small, "before")
    advance(small, 61)
    flood(small, "after")
    assert gauge(small) == 0
    assert small.complete(prompt, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_sessions_that_pin_the_same_pages_each_keep_them(small: LiveServer) -> None:
    with Client(small.url) as client, client.session(prompt=ids(8 * PAGE, "same")) as session:
        session.send(max_tokens=1)
        holders = (session, *session.fork(2, at_turn=0))
        assert [one.pin(ttl="1m").granted_pages for one in holders] == [8, 8, 8]
        assert gauge(small) == 8
        for left, one in zip((8, 8, 0), holders, strict=True):
            one.unpin()
            assert gauge(small) == left
        for one in holders[1:]:
            one.close()


def test_pinning_everything_is_partial_and_others_are_served(small: LiveServer, reference: Reference) -> None:  # noqa: F811
    with Client(small.url, timeout=20) as client, client.session(prompt=ids(40 * PAGE - 2, "all")) as session:
        session.send(max_tokens=1)
        pin = session.pin(ttl="1h")
        assert 0 < pin.granted_pages == gauge(small) < 40
        prompt = ids(100, "another")
        assert client.complete(prompt, max_tokens=8, **IDS).token_ids == reference(prompt, 8)
        for wrong in (math.nan, math.inf, 0, -1, 1e18):
            with pytest.raises(ValueError, match="ttl: got"):
                session.pin(ttl=wrong)
        assert gauge(small) <= pin.granted_pages, "a pin that was refused changes nothing"
