"""What is done and said of replicas that die, or hang with requests.  Without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from chats import CHAT, LONG, said
from in_process import Cluster

from agentcache.local.exchange import Head
from agentcache.ray.exchange import Sent
from agentcache.ray.ingress import Ingress
from agentcache.ray.parts import Call, News, Part, Taken, Trailer
from agentcache.ray.settings import ClusterSettings
from agentcache.ray.visits import Visit
from agentcache.routing.feed import Cursor, FeedDelta
from agentcache.settings import Settings


@pytest.fixture
def lines(cluster: Cluster) -> list[str]:
    cluster.lines.clear()
    return cluster.lines


def test_that_a_replica_died_is_said_once(cluster, lines):
    home = cluster.replica(cluster.http.post(CHAT, json=said(LONG)))
    cluster.know()
    cluster.here.dying[home] = 1
    assert cluster.http.post(CHAT, json=said(LONG)).status_code == 200
    cluster.know()
    assert lines == [f"replica {home} is gone; another one is started"]


def test_that_a_replica_went_is_said_also_when_nobody_asked_it_anything(cluster, lines):
    cluster.here.replicas.pop("r2")
    cluster.know()
    cluster.know()
    assert lines == ["replica r2 is gone, or hangs; another one is started unless it comes back"]


def said_at_the_end_of(steps: Any, **fields: Any) -> list[str]:
    lines: list[str] = []
    ingress = Ingress(Fixed(), Settings(), ClusterSettings(**fields), lines.append)
    steps(ingress)
    return lines


def test_of_replicas_that_are_scaled_away_it_is_not_said_that_others_come():
    lines = said_at_the_end_of(lambda ingress: ingress._gone("r1", False), max_replicas=3)
    assert lines == ["replica r1 is gone, or hangs"]


def test_replicas_that_end_with_everything_are_nothing_to_tell():
    def steps(ingress: Ingress) -> None:
        ingress.close()
        ingress._gone("r1", False)
        ingress._gone("r2", True)

    assert said_at_the_end_of(steps) == []


def test_requests_that_a_hanging_replica_has_are_answered_by_others(cluster):
    session = cluster.http.post("/v1/sessions", json={"system": "Be brief."}).json()["id"]
    home = cluster.replica(cluster.http.post(CHAT, json=said("one", session=session)))
    cluster.know()
    cluster.here.hanging.add(home)
    reply = cluster.http.post(CHAT, json=said("two", session=session), timeout=30)
    assert reply.status_code == 200 and cluster.replica(reply) != home
    assert len(cluster.http.get(f"/v1/sessions/{session}").json()["turns"]) == 2


class Fixed:
    """One replica that takes a request, says nothing while ``quiet`` is set, and then answers."""

    def __init__(self) -> None:
        self.quiet = asyncio.Event()
        self.taken = 0

    async def ask(self, call: Call) -> Any:
        call.choose(["r1"])
        self.taken += 1
        yield [Taken("r1")]
        await self.quiet.wait()
        parts: Sequence[Part] = [Head(200, ()), b"answer", Trailer(None)]
        yield parts

    async def news(self, cursors: Any) -> list[News]:
        return [] if self.taken else [News("r1", FeedDelta(None, Cursor(1, 0), whole=True), True, "", {})]

    async def ask_all(self, sent: Sent) -> list[Any]:
        return []

    async def profile(self) -> Any:
        raise RuntimeError("not asked")


def test_where_nobody_else_is_there_a_request_waits_for_whoever_hangs():
    async def scenario() -> None:
        told: list[Any] = []

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            told.append(message)

        replicas = Fixed()
        ingress = Ingress(replicas, Settings(), ClusterSettings())
        await ingress.steering.look()
        visit = Visit(receive)
        request = Sent("GET", b"/v1/models", ())
        answering = asyncio.ensure_future(ingress._have_answered(visit, request, None, send))
        while not replicas.taken:
            await asyncio.sleep(0)
        await ingress.steering.look()
        assert ingress.steering.hangs("r1")
        assert not (await asyncio.wait([answering], timeout=2.5))[0]
        replicas.quiet.set()
        await answering
        assert replicas.taken == 1 and b"".join(message.get("body", b"") for message in told) == b"answer"

    asyncio.run(scenario())
