"""Clients of an ingress see one server: the same answers and errors, also while replicas come and go.  Without Ray."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from chats import CHAT, LONG, said
from in_process import cluster_here
from live import live_server
from prometheus_client.parser import text_string_to_metric_families
from refused import BODIES, KEYS, MAX_BODY, ORIGINS, ROUTES, answer

from agentcache.ray.vault import VaultRecords
from agentcache_sdk import Client


def eventually(look: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.01)


# -- one server ---------------------------------------------------------------------------------------------------------


def test_a_prompt_goes_where_its_beginning_is(cluster):
    first = cluster.http.post(CHAT, json=said(LONG))
    home = cluster.replica(first)
    cluster.know()
    for turn in range(4):
        reply = cluster.http.post(CHAT, json=said(LONG + str(turn)))
        assert cluster.replica(reply) == home
        assert reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 60


def test_other_beginnings_go_to_several_replicas(cluster):
    homes = {cluster.replica(cluster.http.post(CHAT, json=said(f"number {number}: {LONG}"))) for number in range(12)}
    assert len(homes) > 1


def test_a_stream_is_the_same_as_the_whole_answer(cluster):
    whole = cluster.http.post(CHAT, json=said(LONG, seed=1)).json()["choices"][0]["message"]["content"]
    with cluster.http.stream("POST", CHAT, json=said(LONG, seed=1, stream=True)) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert reply.headers["content-type"].startswith("text/event-stream") and lines[-1] == "[DONE]"
    deltas = [json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines[:-1]]
    assert "".join(deltas) == whole


def test_official_clients_need_not_know(cluster):
    oai = openai.OpenAI(base_url=f"{cluster.url}/v1", api_key="none")
    chat = oai.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=4)
    assert chat.usage.completion_tokens == 4
    first = oai.responses.create(model="tiny", input="hi", max_output_tokens=16)
    second = oai.responses.create(model="tiny", input="more", previous_response_id=first.id, max_output_tokens=16)
    assert second.previous_response_id == first.id and oai.responses.retrieve(second.id).id == second.id
    claude = anthropic.Anthropic(base_url=cluster.url, api_key="none")
    with claude.messages.stream(model="tiny", max_tokens=8, messages=[{"role": "user", "content": "hi"}]) as stream:
        assert stream.get_final_message().usage.output_tokens == 8


def test_sessions_of_the_sdk_stay_with_their_replica(cluster):
    with Client(cluster.url) as client:
        session = client.session(system="Be brief.")
        session.send("one", max_tokens=4)
        (fork,) = session.fork()
        assert session.send("two", max_tokens=4).usage.cached_tokens > 20
        assert fork.send("other", max_tokens=4).usage.cached_tokens > 20
        session.adopt(fork)
        session.rollback(1)
        names = {row["id"].rpartition("-")[2] for row in cluster.http.get("/v1/sessions").json()["data"]}
        assert names <= {"r1", "r2", "r3"}
        assert session.id in {row["id"] for row in cluster.http.get("/v1/sessions").json()["data"]}


def test_tools_are_called(cluster):
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    reply = cluster.http.post(CHAT, json=said("look", tools=[tool], tool_choice="required", max_tokens=200))
    assert reply.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "look"


def test_errors_are_those_of_a_single_server(tiny_model):
    settings = {"max_body": MAX_BODY, "api_keys": ("a", "b"), "admin_keys": ("boss",)}
    with both(tiny_model, **settings) as (cluster, alone):
        alone.headers.pop("authorization")
        for asked in (*BODIES, *ROUTES):
            assert answer(cluster, asked, **KEYS[1]) == answer(alone, asked, **KEYS[1]), asked
        for key in KEYS:
            for asked in (*BODIES[::9], *ROUTES[::7]):
                assert answer(cluster, asked, **key) == answer(alone, asked, **key), (asked, key)
        chunked = cluster.post(CHAT, content=(b" " * 1000 for _ in range(9)), headers=KEYS[1])
        assert chunked.status_code == 413 and chunked.json()["error"]["code"] == "body_too_large"
        assert cluster.get("/metrics", headers={"authorization": "Bearer boss"}).status_code == 200
        assert cluster.get("/health").status_code == 200  # without a key


def test_without_keys_errors_are_those_of_a_single_server_too(tiny_model):
    with both(tiny_model, max_body=MAX_BODY, cors_origins=("https://app.example",)) as (cluster, alone):
        for asked in (*ORIGINS, *BODIES[::5], *ROUTES):
            assert answer(cluster, asked) == answer(alone, asked), asked


def test_a_body_that_does_not_come_is_not_waited_for(tiny_model):
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n".encode()
    with cluster_here(tiny_model, ("r1",), body_timeout_s=0.2) as cluster:
        with socket.create_connection(("127.0.0.1", cluster.port), timeout=30) as client:
            client.sendall(head + b"{")
            answered = client.recv(65536)
        assert answered.startswith(b"HTTP/1.1 408") and b'"code":"too_slow"' in answered
        assert cluster.ingress.close() == 0, "nobody is waited for at the end"


def test_a_client_that_goes_in_the_middle_of_its_body_is_no_failure(tiny_model, caplog):
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n".encode()
    with cluster_here(tiny_model, ("r1",)) as cluster:
        with socket.create_connection(("127.0.0.1", cluster.port), timeout=30) as client:
            client.sendall(head + b"{")
            eventually(lambda: cluster.ingress._visits)
        eventually(lambda: not cluster.ingress._visits)
        assert cluster.http.get("/v1/models").status_code == 200
    assert not [record for record in caplog.records if record.exc_info]


@contextmanager
def both(folder: Path, **fields: Any) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of a cluster and of a single server with the same settings."""
    fields |= {"num_pages": 64, "access_log": "off"}
    alone = live_server(folder, model_names=("tiny",), **fields)
    with cluster_here(folder, ("r1", "r2"), **fields) as cluster, alone as server:
        yield cluster.http, server.http


def test_pages_of_other_origins_are_refused_and_allowed_ones_are_told_so(tiny_model):
    with cluster_here(tiny_model, ("r1",), cors_origins=("https://app.example",)) as cluster:
        for path, kind in ((CHAT, "POST"), ("/v1/cache", "GET"), ("/health", "GET"), ("/replicas/r9/x", "GET")):
            refused = httpx.request("POST", cluster.url + path, json={}, headers={"origin": "https://evil.example"})
            assert refused.status_code == 403 and refused.json()["error"]["code"] == "foreign_origin", path
            body = said("hi") if kind == "POST" else None
            allowed = httpx.request(kind, cluster.url + path, json=body, headers={"origin": "https://app.example"})
            assert allowed.headers.get_list("access-control-allow-origin") == ["https://app.example"], path
        named = httpx.get(cluster.url + "/v1/cache", headers={"host": "rebound.example"})
        assert named.status_code == 403 and named.json()["error"]["code"] == "foreign_host"


# -- everybody's answer -------------------------------------------------------------------------------------------------


def test_metrics_are_of_all_replicas(cluster):
    cluster.http.post(CHAT, json=said("hello"))
    text = cluster.http.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    pages = families["agentcache_pages_total"].samples if "agentcache_pages_total" in families else ()
    assert {sample.labels["replica"] for sample in pages or families["agentcache_pages"].samples} == {"r1", "r2", "r3"}
    assert text.count("# TYPE agentcache_steps ") + text.count("# TYPE agentcache_steps_total ") == 1
    other = cluster.http.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert other.text.endswith("# EOF\n") and other.text.count("# EOF") == 1
    assert cluster.http.head("/metrics").text == ""


def test_a_flush_reaches_all_replicas(cluster):
    for number in range(9):
        cluster.http.post(CHAT, json=said(f"{number} {LONG}"))
    before = cluster.http.get("/v1/cache").json()
    flushed = cluster.http.post("/v1/cache/flush").json()
    assert flushed["flushed"] == before["cached"] > 0 and flushed["free"] == flushed["total"] == 3 * 128
    assert cluster.http.post("/debug/check").json() == {"ok": True, "broken": []}
    cluster.http.post(CHAT, json=said(LONG))
    tree = cluster.http.get("/v1/cache/tree").json()
    assert {node["replica"] for node in tree["nodes"]} <= {"r1", "r2", "r3"} and tree["nodes"]
    assert cluster.http.get("/v1/findings").json()["requests"] >= 10


def test_one_replica_can_be_looked_at_alone(cluster):
    for name in ("r1", "r2", "r3"):
        assert cluster.http.get(f"/replicas/{name}/v1/cache").json()["total"] == 128
        page = cluster.http.get(f"/replicas/{name}/ui")
        assert page.status_code == 200 and cluster.replica(page) == name
    assert cluster.replica(cluster.http.get("/ui/state")) == "r1"  # always the same one
    nobody = cluster.http.get("/replicas/r9/v1/cache")
    assert nobody.status_code == 404 and nobody.json()["error"]["code"] == "no_replica"


def test_health_counts_replicas(cluster):
    whole = cluster.http.get("/health").json()
    assert whole["status"] == "ok" and whole["replicas"] == {"up": 3, "total": 3}
    cluster.here.replicas.pop("r3")
    left = cluster.http.get("/health").json()
    assert left["replicas"]["up"] == 2 and "replica r3" not in left["components"]
    cluster.here.replicas.clear()
    gone = cluster.http.get("/health")
    assert gone.status_code == 503 and gone.json()["reason"] == "no replica is there yet"


# -- clients that go, replicas that go -----------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [True, False])
def test_a_hang_up_frees_the_replica(cluster, streams):
    body = json.dumps(said(LONG, max_tokens=900, stream=streams)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=10) as client:
        client.sendall(head.encode() + body)
        if streams:
            assert client.recv(64)
        eventually(lambda: cluster.running() == 1)
    eventually(lambda: cluster.running() == 0)
    assert cluster.http.post("/debug/check").json()["ok"]


def test_a_replica_that_dies_before_the_first_byte_costs_nobody_an_answer(cluster):
    home = cluster.replica(cluster.http.post(CHAT, json=said(LONG)))
    cluster.know()
    cluster.here.dying[home] = 1  # it has taken the request, and says nothing
    reply = cluster.http.post(CHAT, json=said(LONG))
    assert reply.status_code == 200 and cluster.replica(reply) != home
    again = cluster.http.post(CHAT, json=said(LONG))
    assert again.status_code == 200 and cluster.replica(again) == cluster.replica(reply)


def test_it_is_not_sent_again_for_ever(cluster):
    cluster.here.dying.update(r1=1, r2=1, r3=1)
    reply = cluster.http.post(CHAT, json=said(LONG))
    assert reply.status_code == 503 and reply.json()["error"]["code"] in {"replica_lost", "no_replica"}
    assert reply.headers["retry-after"]
    messages = cluster.http.post("/v1/messages", json={"model": "tiny", "max_tokens": 4, **said("x")})
    assert messages.status_code == 503 and messages.json()["error"]["type"] == "overloaded_error"


def cut_stream(cluster: Any, path: str, body: dict[str, Any]) -> list[tuple[str, Any]]:
    """Names and data of the events of a stream whose replica dies behind the third batch."""
    cluster.here.dying.update(r1=3, r2=3, r3=3)
    field = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    body = {**body, field: 400}  # on a slow machine few pieces can be a single batch
    events = []
    with cluster.http.stream("POST", path, json={**body, "stream": True}) as reply:
        assert reply.status_code == 200
        name = ""
        for line in reply.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                events.append((name, line[6:] if line == "data: [DONE]" else json.loads(line[6:])))
    return events


@pytest.mark.parametrize("path, body", [(CHAT, said(LONG)), ("/v1/completions", {"prompt": LONG, "max_tokens": 8})])
def test_a_stream_that_is_cut_ends_with_an_error_and_its_mark(cluster, path, body):
    *_, (_, error), (_, mark) = cut_stream(cluster, path, body)
    assert error["error"]["code"] == "replica_lost" and mark == "[DONE]"


def test_a_stream_of_messages_ends_in_anthropics_words(cluster):
    *_, (name, error) = cut_stream(cluster, "/v1/messages", {"model": "tiny", **said(LONG)})
    assert name == error["type"] == "error" and error["error"]["type"] == "overloaded_error"
    assert error["request_id"].startswith("req_")


def test_a_stream_of_a_response_ends_in_openais_words(cluster):
    events = cut_stream(cluster, "/v1/responses", {"model": "tiny", "input": LONG, "max_output_tokens": 16})
    (_, error), (name, failed) = events[-2:]
    assert error["type"] == "error" and name == "response.failed" and failed["response"]["status"] == "failed"
    assert failed["response"]["id"] == events[0][1]["response"]["id"]
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))


def test_the_openai_client_raises_on_a_stream_that_is_cut(cluster):
    client = openai.OpenAI(base_url=f"{cluster.url}/v1", api_key="none", max_retries=0)
    cluster.here.dying.update(r1=3, r2=3, r3=3)
    stream = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": LONG}], max_tokens=8, stream=True
    )
    with pytest.raises(openai.APIError, match="is gone; ask again"):
        list(stream)


def test_a_session_goes_on_elsewhere_when_its_replica_is_gone(cluster):
    session = cluster.http.post("/v1/sessions", json={"system": "Be brief."}).json()["id"]
    first = cluster.http.post(CHAT, json=said("one", session=session))
    home = cluster.replica(first)
    cluster.here.replicas.pop(home)
    second = cluster.http.post(CHAT, json=said("two", session=session))
    assert second.status_code == 200 and cluster.replica(second) != home
    told = cluster.http.get(f"/v1/sessions/{session}").json()
    assert len(told["turns"]) == 2
    assert second.json()["usage"]["prompt_tokens"] > first.json()["usage"]["total_tokens"]


def test_a_vault_that_came_up_empty_is_filled_again_by_the_next_turn(tiny_model):
    with cluster_here(tiny_model, ("r1", "r2")) as cluster:
        session = cluster.http.post("/v1/sessions", json={"system": "Be brief."}).json()["id"]
        home = cluster.replica(cluster.http.post(CHAT, json=said("one", session=session)))
        cluster.vault.records = VaultRecords(2**24)
        assert cluster.http.post(CHAT, json=said("two", session=session)).status_code == 200
        eventually(lambda: cluster.vault.records.figures()["records"] == 1)
        cluster.here.replicas.pop(home)
        moved = cluster.http.post(CHAT, json=said("three", session=session))
        assert moved.status_code == 200 and cluster.replica(moved) != home
        assert len(cluster.http.get(f"/v1/sessions/{session}").json()["turns"]) == 3


def test_a_turn_that_was_committed_by_a_replica_that_died_is_not_made_again(cluster):
    session = cluster.http.post("/v1/sessions", json={"system": "Be brief."}).json()["id"]
    home = cluster.replica(cluster.http.post(CHAT, json=said("one", session=session)))
    cluster.here.dying[home] = "all"  # the whole answer is lost, and the turn is committed
    lost = cluster.http.post(CHAT, json=said("two", session=session))
    assert lost.status_code == 200 and cluster.replica(lost) != home
    told = cluster.http.get(f"/v1/sessions/{session}?include=messages").json()
    assert len(told["turns"]) == 2
    assert told["messages"][-1]["content"] == lost.json()["choices"][0]["message"]["content"]


def test_without_a_replica_clients_are_told_when_to_come_back(cluster):
    cluster.here.replicas.clear()
    for method, path in (("POST", CHAT), ("GET", "/v1/cache"), ("GET", "/ui"), ("GET", "/v1/models")):
        reply = cluster.http.request(method, path, json=said("hi") if method == "POST" else None)
        assert reply.status_code == 503 and reply.json()["error"]["code"] == "no_replica", path
        assert reply.headers["retry-after"] == "2"


def test_a_replica_that_comes_is_used(cluster):
    late = cluster.here.replicas.pop("r3")
    cluster.know()
    cluster.here.replicas["r3"] = late
    cluster.know()  # whoever fell silent gets nothing before it speaks, even if it is listed
    homes = {cluster.replica(cluster.http.post(CHAT, json=said(f"comes {n}: {LONG}"))) for n in range(16)}
    assert "r3" in homes


# -- the end ------------------------------------------------------------------------------------------------------------


def test_an_ingress_that_closes_lets_streams_end_and_refuses_what_comes(tiny_model):
    with cluster_here(tiny_model, ("r1",)) as cluster:
        told: list[str] = []
        begun = threading.Event()

        def read(tokens: int) -> None:
            with httpx.stream("POST", cluster.url + CHAT, json=said("x", max_tokens=tokens, stream=True)) as reply:
                for line in reply.iter_lines():
                    told.append(line)
                    begun.set()

        reader = threading.Thread(target=read, args=(300,))
        reader.start()
        assert begun.wait(20)
        assert cluster.on_loop(on_loop(cluster.ingress.close)) >= 1
        refused = cluster.http.post(CHAT, json=said("late"))
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "shutting_down"
        assert cluster.http.get("/health").json()["reason"] == "shutting down"
        reader.join(30)
        lines = [line for line in told if line]
        assert lines[-1] == "data: [DONE]" and '"finish_reason":"length"' in lines[-2]


def test_streams_that_take_too_long_are_cut_in_their_own_words(tiny_model):
    with cluster_here(tiny_model, ("r1",)) as cluster:
        with httpx.stream("POST", cluster.url + CHAT, json=said("x", max_tokens=1900, stream=True)) as reply:
            lines = reply.iter_lines()
            next(lines)
            cluster.on_loop(on_loop(cluster.ingress.cut))
            rest = [line for line in lines if line]
        assert json.loads(rest[-2][6:])["error"]["code"] == "shutting_down" and rest[-1] == "data: [DONE]"
        eventually(lambda: cluster.running() == 0)


async def on_loop(call: Any) -> Any:
    return call()
