"""Every route of ``/v1/sessions``: what it does, what it refuses, and in which words."""

from __future__ import annotations

import time

import pytest
from session_calls import Calls, asked, cached, random_ids, said

SYSTEM = "You are a helpful agent. Read the file, run the tests, and say what is wrong with the parser."
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}


def test_a_new_session_says_what_it_holds(client):
    state = client.call("POST", "/v1/sessions", {"system": SYSTEM, "ttl_s": 120, "metadata": {"task": 7}})
    assert state["tokens"] > 20 and state["pages"] == -(-state["tokens"] // 16)
    assert state["turns"] == [] and state["pinned_until"] is None and state["metadata"] == {"task": 7}
    assert abs(state["expires_at"] - (time.time() + 120)) < 5
    assert client.get(state["id"])["tokens"] == state["tokens"]
    assert state["id"] in [session["id"] for session in client.call("GET", "/v1/sessions")["data"]]


@pytest.mark.parametrize(
    "body,param",
    [
        ({"ttl_s": 0}, "ttl_s"),
        ({"ttl_s": -1}, "ttl_s"),
        ({"ttl_s": 604_801}, "ttl_s"),
        ({"ttl_s": 1e18}, "ttl_s"),
        ({"ttl_s": float("nan")}, "ttl_s"),
        ({"ttl_s": "1h"}, "ttl_s"),
        ({"system": 5}, "system"),
        ({"tools": {}}, "tools"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "x"}]}, "messages[1].role"),
        ({"metadata": []}, "metadata"),
        ({"prompt": [600]}, "prompt"),
        ({"prompt": [[1, 2], [3]]}, "prompt"),
        ({"prompt": "x", "system": "y"}, "prompt"),
        ({"prompt": [1] * 2048}, "prompt"),
        ({"system": "x y " * 4000}, "messages"),
        ({"metadata": {"x": "y" * 20_000}}, "metadata"),
        ({"from_snapshot": "x", "messages": []}, "from_snapshot"),
        ({"from_snapshot": "../x"}, "from_snapshot"),
    ],
)
def test_a_bad_session_is_refused_by_name(client, body, param):
    import json

    reply = client.server.http.post(
        "/v1/sessions", content=json.dumps(body), headers={"content-type": "application/json"}
    )  # fmt: skip
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


def test_another_model_is_not_found(client):
    assert client.refused(404, "POST", "/v1/sessions", {"model": "other"})["code"] == "model_not_found"


def test_an_unknown_session_is_not_found_on_every_route(client):
    for method, verb in [
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/explain"),
        ("POST", "/fork"),
        ("POST", "/wait"),
        ("POST", "/pin"),
        ("POST", "/unpin"),
    ]:
        assert client.refused(404, method, f"/v1/sessions/sess_none{verb}")["code"] == "session_not_found"
    for path, body in [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/completions", {"prompt": "x"}),
    ]:
        for streaming in (False, True):
            error = client.refused(404, "POST", path, {**body, "session": "sess_none", "stream": streaming})
            assert error["code"] == "session_not_found"


def test_what_belongs_to_the_session_cannot_be_changed_by_a_turn(client):
    session = client.create(system=SYSTEM, tools=[TOOL])
    raw = client.create(prompt=[1, 2, 3])
    messages = [{"role": "user", "content": "x"}]
    other = {"type": "function", "function": {**TOOL["function"], "description": "another one"}}
    chat, text = "/v1/chat/completions", "/v1/completions"
    for path, body, param in [
        (chat, {"session": session, "messages": messages, "n": 2}, "n"),
        (chat, {"session": session, "messages": messages, "tools": [other]}, "tools[0].function"),
        (chat, {"session": session, "messages": messages, "cache_salt": "s"}, "cache_salt"),
        (chat, {"session": session, "messages": messages, "add_generation_prompt": False}, "add_generation_prompt"),
        (chat, {"session": raw, "messages": messages}, "session"),
        (text, {"session": session, "prompt": "x"}, "session"),
        (text, {"session": raw, "prompt": ["x", "y"]}, "prompt"),
        (text, {"session": raw, "prompt": [9999]}, "prompt"),
        (text, {"session": client.create(prompt=""), "prompt": ""}, "prompt"),
    ]:
        assert client.refused(400, "POST", path, body)["param"] == param
    assert client.chat(messages, session=session, tools=[TOOL])["usage"]["completion_tokens"] == 8


def test_a_rollback_forgets_turns_and_another_continuation_is_right(client, reference):
    session = client.create(prompt=random_ids(40, "rollback"))
    replies = [client.go_on(session, random_ids(9, i)) for i in range(3)]
    state = client.do(session, "rollback", to_turn=1)
    assert len(state["turns"]) == 1 and state["tokens"] == 40 + 9 + 8
    other = client.go_on(session, random_ids(5, "other"))
    assert asked(other) == asked(replies[0]) + said(replies[0]) + random_ids(5, "other")
    assert said(other) == reference.greedy(asked(other), 8)
    assert cached(other) >= 40 + 9 + 7
    assert client.do(session, "rollback", to_turn=0)["tokens"] == 40
    for wrong in (1, -1, 10**12, "x", None):
        assert client.refused(400, "POST", f"/v1/sessions/{session}/rollback", {"to_turn": wrong})["param"] == "to_turn"


def test_a_chat_rolls_back_to_its_head(client):
    session = client.create(system=SYSTEM)
    first = client.say(session, "one")
    client.say(session, "two")
    client.do(session, "rollback", to_turn=0)
    again = client.say(session, "one")
    assert asked(again) == asked(first) and said(again) == said(first)


@pytest.mark.parametrize("ways", [1, 2, 4, 8])
def test_forks_compute_the_trunk_once(serve, reference, ways):
    with serve() as client:
        session = client.create(prompt=random_ids(100, "trunk"))
        trunk = client.go_on(session, [], 13)
        known = asked(trunk) + said(trunk)
        branches = client.fork(session, ways)
        assert len(set(branches)) == ways
        computed = 0
        for number, branch in enumerate(branches):
            reply = client.go_on(branch, [number, *random_ids(3, number)], 6)
            assert asked(reply) == [*known, number, *random_ids(3, number)]
            assert said(reply) == reference.greedy(asked(reply), 6)
            computed += reply["agentcache"]["computed_tokens"]
        # Of the trunk only its last token, which was drawn but never run, is left to compute, and only once.
        assert computed == 1 + ways * (4 + 5)
        parent = client.go_on(session, [500], 6)
        assert asked(parent) == [*known, 500] and said(parent) == reference.greedy(asked(parent), 6)


def test_branches_in_turn_do_not_see_each_other(serve, reference):
    with serve(num_pages=64) as client:
        session = client.create(prompt=random_ids(20, "branches"))
        client.go_on(session, [], 4)
        branches = [session, *client.fork(session, 2)]
        known = {
            branch: random_ids(20, "branches") + reference.greedy(random_ids(20, "branches"), 4) for branch in branches
        }
        for turn in range(4):
            for number, branch in enumerate(branches):
                new = [10 * turn + number]
                reply = client.go_on(branch, new, 5)
                assert asked(reply) == known[branch] + new
                assert said(reply) == reference.greedy(asked(reply), 5)
                known[branch] = asked(reply) + said(reply)


def test_a_fork_keeps_as_many_turns_as_it_is_told(client):
    session = client.create(system=SYSTEM)
    replies = [client.say(session, f"question {n}") for n in range(3)]
    for kept in range(3):
        (fork,) = client.fork(session, at_turn=kept)
        state = client.get(fork)
        assert len(state["turns"]) == kept and state["parent"] == session
        again = client.say(fork, f"question {kept}")
        assert asked(again) == asked(replies[kept]) and said(again) == said(replies[kept])
    for wrong in (4, -1, "x"):
        assert client.refused(400, "POST", f"/v1/sessions/{session}/fork", {"at_turn": wrong})["param"] == "at_turn"
    for wrong in (0, 1000, 1.5):
        assert client.refused(400, "POST", f"/v1/sessions/{session}/fork", {"n": wrong})["param"] == "n"


def test_explain_tells_what_happened_and_what_is_cached_now(client):
    session = client.create(system=SYSTEM)
    client.say(session, "hello")
    client.do(session, "wait", tool="grep", expect_s=2)
    client.do(session, "unpin")
    story = client.call("GET", f"/v1/sessions/{session}/explain")
    assert [event["event"] for event in story["events"]] == ["created", "turn", "wait", "unpin"]
    assert all(abs(event["at"] - time.time()) < 600 for event in story["events"])
    assert story["cached"]["tokens"] >= story["tokens"] - 1
    turn = story["turns"][0]
    assert turn["messages"] == 2 and turn["completion_tokens"] == 8 and turn["miss"]["code"] in {"cold", "diverged"}


def test_explain_says_that_the_pages_were_evicted(client):
    session = client.create(system="Nobody else begins like this.")
    client.say(session, "hello")
    client.call("POST", "/v1/cache/flush")
    now = client.call("GET", f"/v1/sessions/{session}/explain")["cached"]
    assert now["tokens"] == 0 and now["miss"]["code"] == "evicted"
    second = client.say(session, "and again")
    assert second["agentcache"]["miss"]["code"] == "evicted" and cached(second) == 0
    assert client.get(session)["turns"][1]["miss"]["code"] == "evicted"


def test_an_idle_session_expires_by_the_clock(serve):
    with serve() as client:
        short, long = client.create(system=SYSTEM, ttl_s=60), client.create(system=SYSTEM, ttl_s=600)
        client.advance(40)
        client.say(short, "still here")
        client.advance(40)
        assert client.get(short)["id"] == short  # looking does not count as use, the turn did
        assert "agentcache_sessions 2.0" in client.server.http.get("/metrics").text
        client.advance(21)
        error = client.refused(404, "GET", f"/v1/sessions/{short}")
        assert error["code"] == "session_not_found"
        assert client.get(long)["expires_at"] > time.time()
        assert "agentcache_sessions 1.0" in client.server.http.get("/metrics").text


def test_a_deleted_session_is_gone_and_its_pages_are_plain_cache(serve):
    with serve() as client:
        session = client.create(system=SYSTEM)
        client.say(session, "hello")
        client.do(session, "pin", ttl_s=600)
        assert client.server.pages()["pinned"] > 0
        assert client.call("DELETE", f"/v1/sessions/{session}")["deleted"] is True
        client.refused(404, "GET", f"/v1/sessions/{session}")
        pages = client.server.pages()
        assert pages["pinned"] == 0 and pages["cached"] > 0


def test_keys_never_see_each_others_sessions_snapshots_or_trees(serve):
    with serve(api_keys=("key-one", "key-two")) as client:
        one, two = Calls(client.server, "key-one"), Calls(client.server, "key-two")
        session = one.create(system=SYSTEM)
        first = one.say(session, "secret words")
        one.do(session, "snapshot", name="mine")
        for method, verb in [("GET", ""), ("DELETE", ""), ("GET", "/explain"), ("POST", "/fork")]:
            assert two.refused(404, method, f"/v1/sessions/{session}{verb}")["code"] == "session_not_found"
        body = {"session": session, "messages": [{"role": "user", "content": "x"}]}
        two.refused(404, "POST", "/v1/chat/completions", body)
        assert two.refused(404, "POST", "/v1/sessions", {"from_snapshot": "mine"})["code"] == "snapshot_not_found"
        assert two.call("GET", "/v1/sessions")["data"] == []
        assert two.call("GET", "/v1/cache/tree")["nodes"] == []
        tree = one.call("GET", "/v1/cache/tree")
        assert any("secret words" in node["text"] or "helpful agent" in node["text"] for node in tree["nodes"])
        assert sum(node["pages"] for node in tree["nodes"]) == client.server.pages()["cached"]
        history = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "secret words"},
            {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
            {"role": "user", "content": "more"},
        ]
        foreign = two.chat(history)
        assert foreign["agentcache"]["source"] == "template" and cached(foreign) == 0
        assert foreign["agentcache"]["miss"]["code"] == "cold" and foreign["agentcache"]["miss"]["was"] is None
        assert one.chat(history)["agentcache"]["source"] == "transcript"


def test_the_tree_shows_branches_below_what_they_share(serve):
    with serve() as client:
        trunk = random_ids(40, "tree")
        for branch in range(3):
            client.server.complete([*trunk, branch, *random_ids(30, branch)], max_tokens=1)
        client.server.complete(trunk, max_tokens=1, cache_salt="s")
        tree = client.call("GET", "/v1/cache/tree")
        assert [space["salt"] for space in tree["namespaces"]] == [None, "s"]
        nodes = [node for node in tree["nodes"] if node["namespace"] == 0]
        (top,) = [node for node in nodes if node["parent"] is None]
        assert top["tokens"] == 32 and top["pages"] == 2 and top["state"] == "cached" and top["hits"] >= 1
        below = [node for node in nodes if node["parent"] == top["id"]]
        assert len(below) == 3 and all(node["start"] == 32 for node in below)
        assert not tree["truncated"]
