"""Pins and waits: pages stay until the time is over and not longer, and nobody ever waits for a pin."""

from __future__ import annotations

import json
import time

import pytest
from session_calls import cached, random_ids

TTL = 60


def flood(client, pages: int, name: str) -> None:
    """Run prompts that nobody has sent before, until so many pages were needed."""
    for number in range(pages // 10):
        client.server.complete(random_ids(150, f"{name} {number}"), max_tokens=2)


def session_of(client, tokens: int, name: str) -> str:
    """A raw session whose ``tokens`` are computed."""
    session = client.create(prompt=random_ids(tokens, name), ttl_s=604_800)
    client.go_on(session, [], 1)
    return session


def pinned(client) -> int:
    return client.server.pages()["pinned"]


def test_a_pin_keeps_its_pages_until_it_ends_and_not_longer(serve):
    with serve(num_pages=40) as client:
        session = session_of(client, 160, "a")
        pin = client.do(session, "pin", ttl_s=TTL)
        assert pin["granted_pages"] == 10 == pinned(client)
        assert abs(pin["expires_at"] - time.time() - TTL) < 5
        assert client.get(session)["pinned_until"] == pin["expires_at"]
        flood(client, 200, "first")
        assert pinned(client) == 10
        assert cached(client.server.complete(random_ids(160, "a"), max_tokens=1)) == 159
        client.advance(TTL + 1)
        assert pinned(client) == 0  # nobody touched the pin
        assert client.get(session)["pinned_until"] is None
        flood(client, 200, "second")
        late = client.server.complete(random_ids(160, "a"), max_tokens=1)
        assert cached(late) == 0 and late["agentcache"]["miss"]["code"] == "expired"


def test_pages_of_a_client_that_died_come_back(serve):
    with serve(num_pages=40) as client:
        session_of(client, 160, "dead")
        client.do(client.call("GET", "/v1/sessions")["data"][0]["id"], "pin", ttl_s=TTL)
        client.advance(TTL + 1)
        flood(client, 80, "after")
        assert client.server.pages()["pinned"] == 0
        assert client.call("POST", "/v1/cache/flush")["free"] == 40


def test_pins_of_one_session_replace_each_other(serve):
    with serve(num_pages=40) as client:
        session = session_of(client, 160, "thrice")
        for _ in range(3):
            assert client.do(session, "pin", ttl_s=TTL)["granted_pages"] == 10 == pinned(client)
        client.do(session, "unpin")
        assert pinned(client) == 0
        client.do(session, "unpin")


def test_two_sessions_that_pin_the_same_pages_both_have_to_let_go(serve):
    with serve(num_pages=40) as client:
        session = session_of(client, 160, "both")
        (fork,) = client.fork(session)
        for each in (session, fork):
            client.do(each, "pin", ttl_s=TTL)
        client.do(session, "unpin")
        assert pinned(client) == 10
        client.call("DELETE", f"/v1/sessions/{fork}")
        assert pinned(client) == 0


@pytest.mark.parametrize("tokens", [608, 639])
def test_a_pin_of_nearly_everything_is_partial_and_stalls_nobody(serve, tokens):
    with serve(num_pages=40) as client:
        session = session_of(client, tokens, "large")
        pin = client.do(session, "pin", ttl_s=TTL)
        assert pin["granted_pages"] == 20 == pinned(client)  # the budget is half of the pool
        started = time.monotonic()
        assert client.server.complete(random_ids(100, "normal"), max_tokens=8)["usage"]["completion_tokens"] == 8
        assert client.server.complete(random_ids(620, "huge"), max_tokens=8)["usage"]["completion_tokens"] == 8
        assert time.monotonic() - started < 5
        pages = client.server.pages()
        assert pages["free"] + pages["cached"] + pages["pinned"] == 40


def test_over_the_budget_the_oldest_lease_lapses(serve):
    with serve(num_pages=40) as client:
        sessions = [session_of(client, 96, name) for name in "abcd"]
        for session in sessions:
            assert client.do(session, "pin", ttl_s=TTL)["granted_pages"] == 6
        assert pinned(client) == 18
        assert client.get(sessions[0])["pinned_until"] is None
        assert all(client.get(session)["pinned_until"] for session in sessions[1:])


@pytest.mark.parametrize("ttl", [0, -1, 1e18, float("nan"), 604_801, "60", None])
def test_a_lease_of_no_sensible_length_is_refused(client, ttl):
    session = client.create(prompt=[1, 2, 3])
    for verb in ("pin", "wait"):
        body = json.dumps({"ttl_s": ttl, "tool": "x"})
        headers = {"content-type": "application/json"}
        reply = client.server.http.post(f"/v1/sessions/{session}/{verb}", content=body, headers=headers)
        if ttl is None:  # null is absent
            assert reply.status_code == 200
        else:
            assert reply.status_code == 400 and reply.json()["error"]["param"] == "ttl_s"


def test_a_hit_does_not_lengthen_a_pin_and_a_turn_carries_it_along(serve):
    with serve(num_pages=64) as client:
        session = session_of(client, 160, "carry")
        until = client.do(session, "pin", ttl_s=TTL)["expires_at"]
        client.advance(50)
        client.go_on(session, random_ids(32, "new"), 16)
        assert pinned(client) == 13  # 160 + 1 + 32 + 15 tokens with keys and values
        assert client.get(session)["pinned_until"] == pytest.approx(until, abs=0.01)
        client.advance(50)
        assert pinned(client) == 0


def test_a_lease_made_before_anything_is_cached_keeps_what_comes(serve):
    with serve(num_pages=64) as client:
        session = client.create(prompt=random_ids(160, "before"))
        assert client.do(session, "pin", ttl_s=TTL)["granted_pages"] == 0
        client.go_on(session, [], 1)
        assert pinned(client) == 10


def test_a_wait_keeps_the_pages_while_the_tool_runs(serve):
    with serve(num_pages=40) as client:
        session = session_of(client, 160, "wait")
        wait = client.do(session, "wait", tool="pytest", expect_s=20)
        assert wait["granted_pages"] == 10 and wait["tool"] == "pytest"
        assert abs(wait["expires_at"] - time.time() - 60) < 5
        client.do(session, "pin", ttl_s=500)
        assert client.do(session, "wait", tool="ls")["expires_at"] - time.time() > 400  # never shortens
        flood(client, 200, "meanwhile")
        assert cached(client.server.complete(random_ids(160, "wait"), max_tokens=1)) == 159


def test_an_expired_session_gives_its_pin_back(serve):
    with serve(num_pages=40) as client:
        session = client.create(prompt=random_ids(160, "short"), ttl_s=30)
        client.go_on(session, [], 1)
        client.do(session, "pin", ttl_s=600)
        assert pinned(client) == 10
        client.advance(31)
        assert pinned(client) == 0
