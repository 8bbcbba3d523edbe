"""A session goes on as its fork did: the fork's turns become its own, in one step, and the fork is over."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from session_calls import Calls, asked, cached, random_ids, said

SYSTEM = "You are a helpful agent. Read the file, run the tests, and say what is wrong with the parser."


def refused(client, status, session, fork, **body):
    return client.refused(status, "POST", f"/v1/sessions/{session}/adopt", {"session": fork, **body})


def adopt(client, session, fork, **body):
    return client.call("POST", f"/v1/sessions/{session}/adopt", {"session": fork, **body})


def explained(client, session):
    return client.call("GET", f"/v1/sessions/{session}/explain")


def whole(client, session):
    return client.call("GET", f"/v1/sessions/{session}?include=messages")


@contextmanager
def a_turn_of(client, session):
    body = {"session": session, "messages": [{"role": "user", "content": "long"}], "max_tokens": 900, "stream": True}
    with client.server.http.stream("POST", "/v1/chat/completions", json=body) as reply:
        lines = reply.iter_lines()  # dropped, it would hang up
        next(lines)
        yield


def talked(client, *texts: str, **body) -> str:
    session = client.create(system=SYSTEM, **body)
    for text in texts:
        client.say(session, text)
    return session


def test_a_session_goes_on_as_its_fork_did(client):
    session = talked(client, "one", metadata={"task": 1})
    (fork,) = client.fork(session)
    client.say(fork, "two")
    last = client.say(fork, "three")
    there = whole(client, fork)
    state = adopt(client, session, fork)
    assert state["id"] == session and state["metadata"] == {"task": 1} and state["parent"] is None
    now = whole(client, session)
    assert [now[key] for key in ("messages", "turns", "tokens")] == [
        there[key] for key in ("messages", "turns", "tokens")
    ]
    assert client.refused(404, "GET", f"/v1/sessions/{fork}")["code"] == "session_not_found"
    told = explained(client, session)
    event = told["events"][-1]
    assert {key: event[key] for key in event if key != "at"} == {
        "event": "adopted", "child": fork, "turns": 3, "dropped": 0,
    }  # fmt: skip
    assert told["cached"]["tokens"] == told["tokens"] - 1
    after = client.say(session, "four", if_turns=3)
    before = asked(last) + said(last)
    assert asked(after)[: len(before)] == before and cached(after) >= len(before) - 1
    client.do(session, "rollback", to_turn=2)
    again = client.say(session, "three")
    assert asked(again) == asked(last) and said(again) == said(last)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_turns_that_the_fork_did_not_have_are_dropped(client, kept):
    session = talked(client, "one", "two")
    (fork,) = client.fork(session, at_turn=kept)
    client.say(fork, "another")
    client.say(session, "mine")
    adopted = whole(client, fork)["messages"]
    assert len(adopt(client, session, fork)["turns"]) == kept + 1
    assert whole(client, session)["messages"] == adopted
    event = explained(client, session)["events"][-1]
    assert (event["turns"], event["dropped"]) == (kept + 1, 3 - kept)


def test_a_fork_of_a_fork_and_a_restored_session_are_adopted_as_well(client):
    session = talked(client, "one")
    (child,) = client.fork(session)
    client.say(child, "two")
    (grandchild,) = client.fork(child)
    client.say(grandchild, "three")
    adopt(client, session, grandchild)
    assert len(client.get(session)["turns"]) == 3 and len(client.get(child)["turns"]) == 2
    client.do(session, "snapshot", name="adopted")
    restored = client.create(from_snapshot="adopted")
    client.say(restored, "four")
    adopt(client, session, restored)
    event = explained(client, session)["events"][-1]
    assert (event["turns"], event["dropped"]) == (4, 0)


def test_what_a_fork_of_an_adopted_fork_does_is_its_own(client):
    session = talked(client, "one")
    (fork,) = client.fork(session)
    client.say(fork, "two")
    (other,) = client.fork(fork)
    adopt(client, session, fork)
    client.say(session, "three")
    client.do(other, "rollback", to_turn=1)
    assert [len(client.get(each)["turns"]) for each in (session, other)] == [3, 1]


def test_a_raw_session_adopts_a_raw_fork(client):
    session = client.create(prompt=random_ids(40, "adopt raw"))
    (fork,) = client.fork(session)
    reply = client.go_on(fork, [1, 2], 5)
    adopt(client, session, fork)
    after = client.go_on(session, [3], 2)
    assert asked(after) == asked(reply) + said(reply) + [3] and cached(after) == len(asked(after)) - 2
    other = client.create(prompt=random_ids(41, "adopt raw"))
    assert "beginning" in refused(client, 422, session, other)["message"]


def test_what_does_not_begin_alike_is_refused_with_both_names(client):
    session = talked(client, "one")
    others = {
        "beginning": client.create(system=SYSTEM + "!"),
        "cache_salt": client.create(system=SYSTEM, cache_salt="s"),
        "kind": client.create(prompt="raw"),
    }
    for what, other in others.items():
        error = refused(client, 422, session, other)
        assert error["code"] == "session_diverged" and error["param"] == "session"
        assert what in error["message"] and session in error["message"] and other in error["message"]
        assert client.get(other)["id"] == other
    assert refused(client, 400, session, session)["param"] == "session"
    assert refused(client, 400, session, None)["param"] == "session"
    error = refused(client, 404, session, "sess_none")
    assert error["code"] == "session_not_found" and error["param"] == "session"
    assert len(client.get(session)["turns"]) == 1
    adopt(client, session, client.create(system=SYSTEM))  # made alike: the first turn is dropped
    assert explained(client, session)["events"][-1]["dropped"] == 1


def test_a_session_that_somebody_else_went_on_with_adopts_nothing(client):
    session = talked(client, "one")
    (fork,) = client.fork(session)
    client.say(session, "two")
    error = refused(client, 422, session, fork, if_turns=1)
    assert error["code"] == "session_diverged" and error["param"] == "if_turns"
    assert [len(client.get(each)["turns"]) for each in (session, fork)] == [2, 1]
    adopt(client, session, fork, if_turns=2)


def test_an_adoption_whose_answer_was_lost_may_be_asked_for_again(client):
    session = talked(client, "one")
    (fork,) = client.fork(session)
    client.say(fork, "two")
    first = adopt(client, session, fork, if_turns=1)
    client.do(session, "pin")
    client.do(session, "unpin")
    again = adopt(client, session, fork, if_turns=1)
    assert again["turns"] == first["turns"]
    assert [event["event"] for event in explained(client, session)["events"]].count("adopted") == 1
    client.say(session, "three")
    assert refused(client, 404, session, fork)["code"] == "session_not_found"


def test_nothing_is_adopted_while_one_of_the_two_generates(client):
    session = talked(client, "one")
    (fork,) = client.fork(session)
    for busy in (session, fork):
        with a_turn_of(client, busy):
            error = refused(client, 429, session, fork)
            assert error["code"] == "session_busy" and busy in error["message"]
    assert client.get(fork)["id"] == fork
    assert "adopted" not in [event["event"] for event in explained(client, session)["events"]]


def test_another_keys_session_does_not_exist(serve):
    with serve(api_keys=("key-one", "key-two")) as client:
        one, two = Calls(client.server, "key-one"), Calls(client.server, "key-two")
        session, foreign = one.create(system=SYSTEM), two.create(system=SYSTEM)
        for caller, into, fork in ((one, session, foreign), (two, session, foreign)):
            assert refused(caller, 404, into, fork)["code"] == "session_not_found"


def pinned(client) -> int:
    return client.server.pages()["pinned"]


def test_the_sessions_lease_moves_along_and_the_forks_ends(serve):
    with serve(num_pages=60) as client:
        session = client.create(prompt=random_ids(64, "leases"))
        client.go_on(session, [], 1)
        (fork,) = client.fork(session)
        client.go_on(fork, random_ids(80, "more"), 1)  # 64 + 1 + 80 + 1
        (sibling,) = client.fork(session)
        client.do(fork, "pin", ttl_s=600)
        until = client.do(session, "pin", ttl_s=60)["expires_at"]
        assert pinned(client) == 10
        state = adopt(client, session, fork)
        assert state["pinned_until"] == until and pinned(client) == 10
        client.do(session, "unpin")
        assert pinned(client) == 0
        client.do(sibling, "pin", ttl_s=600)
        adopt(client, session, sibling)  # it has no lease, and inherits none
        assert pinned(client) == 0 and client.get(session)["pinned_until"] is None
