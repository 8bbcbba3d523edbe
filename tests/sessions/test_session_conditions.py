"""Two clients on one session: neither goes on from, or drops, what it has not seen."""

from __future__ import annotations

import pytest
from session_calls import asked, random_ids, said

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


def rollback(client, session, status, **body):
    return client.refused(status, "POST", f"/v1/sessions/{session}/rollback", body)


def turns(client, session):
    return len(client.get(session)["turns"])


def test_a_turn_is_refused_where_the_session_has_another_number_of_turns(client):
    session = client.create(system="Be brief.")
    client.chat(HELLO, session=session, if_turns=0)
    for streaming in (False, True):
        body = {"session": session, "messages": HELLO, "if_turns": 0, "stream": streaming}
        error = client.refused(422, "POST", CHAT, body)
        assert error["code"] == "session_diverged" and error["param"] == "if_turns"
        assert "got 0" in error["message"] and "1 turns" in error["message"]
    assert turns(client, session) == 1
    client.chat(HELLO, session=session, if_turns=1)
    assert turns(client, session) == 2


def test_a_raw_turn_is_held_to_the_same(client):
    session = client.create(prompt=random_ids(20, "raw"))
    client.go_on(session, [1], if_turns=0)
    body = {"session": session, "prompt": [2], "if_turns": 0}
    assert client.refused(422, "POST", "/v1/completions", body)["code"] == "session_diverged"
    client.go_on(session, [2], if_turns=1)


def test_a_rollback_drops_nothing_where_there_are_other_turns(client):
    session = client.create(system="Be brief.")
    for number in range(2):
        client.say(session, f"question {number}")
    for wrong in (0, 1, 3):
        error = rollback(client, session, 422, to_turn=0, if_turns=wrong)
        assert error["code"] == "session_diverged" and error["param"] == "if_turns"
    assert turns(client, session) == 2
    for _ in range(2):  # the second one, as after an answer that was lost, finds nothing to drop
        client.do(session, "rollback", to_turn=1, if_turns=2)
        assert turns(client, session) == 1


def test_a_client_drops_its_own_turn_and_no_other(client):
    session = client.create(prompt=random_ids(30, "own"))
    first = client.go_on(session, [1], turn_id="a.0")
    client.do(session, "rollback", to_turn=1, only_turn_id="a.1")  # it never arrived: there is nothing to drop
    client.go_on(session, [2], turn_id="b.1")
    error = rollback(client, session, 422, to_turn=1, only_turn_id="a.1")
    assert error["code"] == "session_diverged" and error["param"] == "only_turn_id"
    assert turns(client, session) == 2
    client.do(session, "rollback", to_turn=1, only_turn_id="b.1")
    assert turns(client, session) == 1
    client.go_on(session, [3], turn_id="a.1")
    client.go_on(session, [4], turn_id="b.2")
    rollback(client, session, 422, to_turn=1, only_turn_id="a.1")  # b goes on from it
    client.do(session, "rollback", to_turn=1)
    client.go_on(session, [5])  # a client that gives its turns no names
    rollback(client, session, 422, to_turn=1, only_turn_id="a.1")
    client.do(session, "rollback", to_turn=0)
    assert rollback(client, session, 422, to_turn=1, only_turn_id="a.1")["code"] == "session_diverged"
    again = client.go_on(session, [1])
    assert asked(again) == asked(first) and said(again) == said(first)


def test_the_turn_keeps_its_name_in_a_fork(client):
    session = client.create(prompt=random_ids(30, "forked"))
    client.go_on(session, [1], turn_id="a.0")
    (fork,) = client.fork(session)
    rollback(client, fork, 422, to_turn=0, only_turn_id="b.0")
    client.do(fork, "rollback", to_turn=0, only_turn_id="a.0")
    assert turns(client, fork) == 0 and turns(client, session) == 1


@pytest.mark.parametrize(
    "body", [{"if_turns": -1}, {"if_turns": "1"}, {"only_turn_id": ""}, {"only_turn_id": "x" * 65}]
)
def test_a_condition_that_is_none_is_refused_by_name(client, body):
    session = client.create(system="Be brief.")
    error = rollback(client, session, 400, to_turn=0, **body)
    assert error["param"] == next(iter(body))


@pytest.mark.parametrize("body", [{"if_turns": -1}, {"turn_id": ""}, {"turn_id": "x" * 65}, {"turn_id": 5}])
def test_a_turn_with_a_bad_condition_is_refused_by_name(client, body):
    session = client.create(system="Be brief.")
    error = client.refused(400, "POST", CHAT, {"session": session, "messages": HELLO, **body})
    assert error["param"] == next(iter(body)) and turns(client, session) == 0
