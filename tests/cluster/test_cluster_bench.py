"""Parts of ``bench/cluster.py``: what is counted of each request, against servers with a tiny model and one that misbehaves."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest
from live import live_server

from bench.cluster import main
from bench.cluster_parts import hits, kills, programs, sim
from bench.cluster_parts.load import (
    BROKEN,
    CUT,
    SERVED,
    Client,
    LoadSpec,
    Outcome,
    Tally,
    open_sessions,
    run_agents,
    run_sessions,
)
from bench.cluster_parts.sim_run import Cluster
from bench.cluster_parts.stores import fetches

SPEC = LoadSpec(teams=2, agents=2, turns=2, shared_tokens=64, new_tokens=48, output_tokens=4, tool_s=0.02)


@pytest.fixture(scope="module")
def pair(model, tmp_path_factory):
    store = tmp_path_factory.mktemp("bench-store").as_uri()
    with (
        live_server(model, replica="r0", store=store) as first,
        live_server(model, replica="r1", store=store) as second,
    ):
        yield first, second


def test_agents_ask_each_server_in_turn_and_every_request_is_counted(pair):
    told = []
    tally = hits.measured([server.url for server in pair], SPEC, lambda: told.append(1))
    assert tally.hows == {SERVED: 8} and len(told) == 8
    assert tally.replicas == {"r0": 4, "r1": 4}
    assert 0 < tally.hit_rate < 1
    assert all(sum(outcome.tiers.values()) == outcome.cached for outcome in tally.outcomes)
    again = hits.measured([pair[0].url], SPEC, lambda: None)
    assert again.hit_rate > tally.hit_rate


def test_sessions_take_their_turns_once(pair):
    async def run():
        async with httpx.AsyncClient(timeout=60) as http:
            client = Client(http, [pair[0].url], "tiny")
            names = await open_sessions(client, SPEC, 2)
            await run_sessions(client, SPEC, names, [0, 1])
            await run_sessions(client, SPEC, names, [1])  # the same turn again
            return client.outcomes, [(await http.get(f"{pair[0].url}/v1/sessions/{name}")).json() for name in names]

    outcomes, sessions = asyncio.run(run())
    assert {outcome.how for outcome in outcomes} == {SERVED}
    assert [len(session["turns"]) for session in sessions] == [2, 2]


def test_fetches_are_read_from_the_servers_metrics(pair):
    assert set(fetches(pair[0].url)) == {"fetched", "nothing", "gate", "late", "failed"}


@asynccontextmanager
async def stream_of(*events: str, end: bool):
    """A server that streams ``events`` and then ends properly, or hangs up."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for event in events:
            data = f"data: {event}\n\n".encode()
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        writer.write(b"0\r\n\r\n" if end else b"")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


TOKEN = '{"choices": [{"delta": {"content": "a"}}]}'


@pytest.mark.parametrize(
    "events, end, how",
    [
        ((TOKEN, "[DONE]"), True, SERVED),
        ((TOKEN, '{"error": {"message": "gone"}}'), True, CUT),
        ((TOKEN,), False, BROKEN),
        ((TOKEN,), True, BROKEN),
        ((), False, "RemoteProtocolError before the first byte"),
    ],
)
def test_how_a_stream_ended_is_told_apart(events, end, how):
    async def run():
        async with stream_of(*events, end=end) as url, httpx.AsyncClient(timeout=10) as http:
            return (await Client(http, [url], "m").ask("a", {"messages": []}))[0]

    assert asyncio.run(run()).how == how


def test_an_agent_sends_a_turn_once_more_and_no_more():
    async def run():
        async with stream_of(TOKEN, end=False) as url, httpx.AsyncClient(timeout=10) as http:
            client = Client(http, [url], "m")
            await run_agents(client, LoadSpec(1, 1, 3, 64, 48, 4, tool_s=0.01), retry=True)
            return client.tally

    tally = asyncio.run(run())
    assert [outcome.again for outcome in tally.outcomes] == [False, True]
    assert len(kills.firsts(tally).outcomes) == len(kills.retries(tally).outcomes) == 1 and tally.unserved == 2


def test_a_replica_that_was_killed_is_waited_for_until_another_one_is_there_or_time_is_over(tmp_path, monkeypatch):
    up = programs.Cluster("http://127.0.0.1:9", programs.Program("up", (), tmp_path, lambda: True))
    told = iter([["r0", "r1"], ["r1"], ["r1", "r2"]])  # it is noticed only after a while
    monkeypatch.setattr(programs.Cluster, "names", lambda up: next(told))
    assert up.wait_for(2, other_than={"r0", "r1"}) == ["r1", "r2"]
    monkeypatch.setattr(programs.Cluster, "names", lambda up: ["r0", "r1"])
    assert up.wait_for(2) == ["r0", "r1"]
    monkeypatch.setattr(programs, "STARTED_S", 0.01)
    with pytest.raises(programs.ProgramFailedError, match="2 replicas other than r0, r1 did not answer"):
        up.wait_for(2, other_than={"r0", "r1"})


def test_prefixes_that_strayed_are_those_of_replicas_that_lived():
    before = {"a": "r0", "b": "r1", "c": "r1", "d": "r0"}
    after = {"a": "r2", "b": "r1", "c": "r2", "d": "r1"}
    found = hits.Moves("r0", before, after, {"e": "r2", "f": "r1"}, "r2")
    assert (found.of_dead, found.strayed, found.to_new) == (2, 1, 1)


def test_rates_count_what_was_served_alone():
    def of(how: str, prompt: int, cached: int) -> Outcome:
        return Outcome("a", how, "r0", 0.5, prompt, cached, {"store": cached})

    tally = Tally((of(SERVED, 100, 50), of(CUT, 1000, 1000), of(SERVED, 100, 100)))
    assert tally.hit_rate == 0.75 and tally.in_tier("store") == 150 and tally.ttft(50) == 0.5
    assert Tally(()).hit_rate == 0.0


def test_figures_of_the_simulation_are_written_where_they_are_asked_for(tmp_path, monkeypatch, capsys):
    seeds, simulate = [], sim.simulate

    def small(cluster, traffic, told):
        seeds.append(traffic.seed)
        return simulate(Cluster(2, cluster.pages), replace(traffic, sessions=8, at_once=6, turns=3, kinds=1), told)

    monkeypatch.setattr(sim, "simulate", small)
    file = tmp_path / "figures.json"
    status = main(["--simulate", "--seed", "3", "--json", str(file)])
    figures = json.loads(file.read_text("utf-8"))
    assert seeds == [3] and [line["turns"] for line in figures["lines"]] == [24] * 6
    assert status == (0 if figures["share_of_one_machine"] >= sim.GOAL else 1)
    assert f"{figures['share_of_one_machine']:.1%} of one machine's hit rate" in capsys.readouterr().out
