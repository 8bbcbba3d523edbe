"""What a session holds, asked for by its owner: what was said in it, and where its pages are now."""

from __future__ import annotations

import json

import pytest
from session_calls import Calls, asked, random_ids, said

SYSTEM = "You are a helpful agent. Read the file, run the tests, and say what is wrong with the parser."
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}


def whole(client, session):
    return client.call("GET", f"/v1/sessions/{session}?include=messages")


def explained(client, session):
    return client.call("GET", f"/v1/sessions/{session}/explain")["cached"]


def test_a_conversation_can_be_read_back(client):
    session = client.create(system=SYSTEM, tools=[TOOL])
    assert whole(client, session)["messages"] == [{"role": "system", "content": SYSTEM}]
    replies = [client.say(session, text) for text in ("one", "two")]
    state = whole(client, session)
    expected = [{"role": "system", "content": SYSTEM}]
    for text, reply in zip(("one", "two"), replies, strict=True):
        expected += [{"role": "user", "content": text}, reply["choices"][0]["message"]]
    assert state["messages"] == expected and state["tools"] == [TOOL]
    assert [turn["messages"] for turn in state["turns"]] == [2, 2]
    client.do(session, "rollback", to_turn=1)
    assert whole(client, session)["messages"] == expected[:3]
    (fork,) = client.fork(session, at_turn=0)
    assert whole(client, fork)["messages"] == expected[:1]


def test_it_is_said_only_where_it_is_asked_for(client):
    session = client.create(system=SYSTEM)
    for state in (
        client.get(session),
        client.get(session + "?include="),
        client.call("GET", "/v1/sessions")["data"][-1],
    ):
        assert state["id"] == session and "messages" not in state and SYSTEM not in json.dumps(state)
    for wrong in ("ids", "messages,ids"):
        error = client.refused(400, "GET", f"/v1/sessions/{session}?include={wrong}")
        assert error["param"] == "include" and "messages" in error["message"]


def test_a_raw_session_is_read_back_as_text(client):
    session = client.create(prompt=random_ids(20, "raw"))
    reply = client.go_on(session, [1, 2], 5)
    ids = asked(reply) + said(reply)
    text = client.call("POST", "/detokenize", {"tokens": ids})["prompt"]
    state = whole(client, session)
    assert state["text"] == text and "messages" not in state and state["tokens"] == len(ids)


def test_a_snapshot_says_what_it_holds_when_it_is_restored(client):
    session = client.create(system=SYSTEM)
    client.say(session, "one")
    client.do(session, "snapshot", name="held")
    restored = client.call("POST", "/v1/sessions?include=messages", {"from_snapshot": "held"})
    assert restored["messages"] == whole(client, session)["messages"]


def test_nobody_else_reads_it(serve):
    with serve(api_keys=("key-one", "key-two")) as client:
        one, two = Calls(client.server, "key-one"), Calls(client.server, "key-two")
        session = one.create(system=SYSTEM)
        assert whole(one, session)["messages"]
        assert two.refused(404, "GET", f"/v1/sessions/{session}?include=messages")["code"] == "session_not_found"


@pytest.mark.parametrize("tier", ["host", "disk"])
def test_explain_tells_pages_below_the_device_from_evicted_ones(serve, tmp_path, tier):
    below = {"host": {"host_pages": 64}, "disk": {"disk_dir": tmp_path / "pages"}}[tier]
    with serve(num_pages=64, **below) as client:
        session = client.create(prompt=random_ids(100, "below"))
        client.go_on(session, [], 4)
        held = explained(client, session)
        assert held["tiers"] == {"device": 103, "host": 0, "disk": 0, "store": 0} and held["miss"] is None
        client.call("POST", "/v1/cache/flush")
        now = explained(client, session)
        assert now["tiers"] == {"device": 0, "host": 0, "disk": 0, "store": 0} | {tier: 96}
        assert now["tokens"] == 96 and now["pages"] == 6
        assert now["miss"]["code"] == "cold" and now["miss"]["at_token"] == 96  # the rest fills no page
        reply = client.go_on(session, [5], 1)
        assert reply["agentcache"]["tiers"] == now["tiers"]


def test_explain_says_where_the_tiers_end(serve):
    with serve(num_pages=64, host_pages=3) as client:
        session = client.create(prompt=random_ids(100, "half"))
        client.go_on(session, [], 1)
        client.call("POST", "/v1/cache/flush")
        now = explained(client, session)
        # Three of six pages: those that were evicted last, which are the beginning.
        assert now["tiers"]["host"] == now["tokens"] == 48
        assert now["miss"]["code"] == "evicted" and now["miss"]["at_token"] == 48
        client.server.complete(random_ids(60, "other"), max_tokens=1)
        client.call("POST", "/v1/cache/flush")
        assert explained(client, session)["tokens"] == 0


def test_explain_reads_and_moves_nothing(serve, tmp_path):
    with serve(num_pages=64, disk_dir=tmp_path / "pages") as client:
        session = client.create(prompt=random_ids(100, "still"))
        client.go_on(session, [], 1)
        client.call("POST", "/v1/cache/flush")
        before = client.server.pages()
        assert explained(client, session)["tiers"]["disk"] == 96
        assert (
            client.server.pages()["tiers"][0]["counts"].get("read", 0) == 0
            and client.server.pages()["free"] == before["free"]
        )


def test_explain_says_that_the_cache_is_off(serve):
    with serve(prefix_cache=False) as client:
        session = client.create(prompt=random_ids(40, "off"))
        client.go_on(session, [], 1)
        assert explained(client, session)["miss"]["code"] == "disabled"
