"""Every answer carries the id of its request, under the names that clients read."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from live import live_engine
from stub_engine import StubEngine

from agentcache.settings import Settings

BODY = {"prompt": "hello", "max_tokens": 3}


@pytest.fixture(scope="module")
def stub():
    with live_engine(StubEngine(), Settings(model="stub", api_keys=("key-of-a-test",))) as running:
        yield running


def test_the_clients_own_id_comes_back_under_both_names(stub):
    reply = stub.http.post("/v1/completions", json=BODY, headers={"x-request-id": "trace-7.a_B"})
    assert reply.headers["x-request-id"] == reply.headers["request-id"] == "trace-7.a_B"


def test_whoever_sends_none_gets_one_of_its_own(stub):
    ids = {stub.http.get("/health").headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3
    assert all(re.fullmatch(r"req_[0-9a-f]{32}", name) for name in ids)


@pytest.mark.parametrize("odd", ["", "a b", "x" * 129, "né", 'a"b', "<script>", "a/b"])
def test_an_id_that_is_not_safe_in_a_log_is_replaced(stub, odd):
    reply = stub.http.get("/health", headers={"x-request-id": odd.encode()})
    assert reply.headers["x-request-id"].startswith("req_")
    assert stub.http.get("/health", headers={"x-request-id": "x" * 128}).headers["x-request-id"] == "x" * 128


def test_errors_carry_it_too(stub, monkeypatch):
    mine = {"x-request-id": "mine"}
    replies = [
        stub.http.get("/no/such/path", headers=mine),
        stub.http.put("/health", headers=mine),
        stub.http.post("/v1/completions", content=b"{", headers=mine),
        stub.http.post("/v1/completions", json=BODY, headers={**mine, "authorization": "Bearer wrong"}),
    ]
    monkeypatch.setattr(stub.engine, "stats", lambda: 1 / 0)
    with httpx.Client(base_url=stub.url, headers=stub.http.headers) as http:  # such an answer ends its connection
        replies.append(http.get("/metrics", headers=mine))
    assert [reply.status_code for reply in replies] == [404, 405, 400, 401, 500]
    for reply in replies:
        assert reply.headers.get_list("x-request-id") == reply.headers.get_list("request-id") == ["mine"]


def test_a_server_with_a_name_among_others_says_it_and_one_that_stands_alone_says_nothing(stub):
    with live_engine(StubEngine(), Settings(model="stub", replica="r7")) as replica:
        answers = [
            replica.http.get("/health"),
            replica.http.get("/no/such/path"),
            replica.http.post("/v1/completions", json=BODY),
        ]
        assert [answer.headers.get("x-agentcache-replica") for answer in answers] == ["r7"] * 3
    assert "x-agentcache-replica" not in stub.http.get("/health").headers


def test_events_of_a_stream_pass_one_by_one(stub, monkeypatch):
    """The first is read while the engine still generates."""
    monkeypatch.setattr(stub.engine.script, "interval", 0.05)
    body = {**BODY, "max_tokens": 20, "stream": True}
    before = stub.engine.emitted
    with stub.http.stream("POST", "/v1/completions", json=body, headers={"x-request-id": "s1"}) as reply:
        assert reply.headers["x-request-id"] == "s1"
        lines = reply.iter_lines()
        first = next(line for line in lines if line.startswith("data: "))
        assert json.loads(first.removeprefix("data: "))["choices"]
        assert stub.engine.emitted - before < 20
        monkeypatch.setattr(stub.engine.script, "interval", 0)
        assert [line for line in lines if line][-1] == "data: [DONE]"
