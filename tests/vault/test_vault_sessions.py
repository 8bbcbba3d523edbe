"""A session that was begun on one server and goes on on another."""

from __future__ import annotations

import re

import pytest
from session_calls import asked, chat_body, random_ids, raw_body, said
from waiting import wait_until

from agentcache.replica_ids import replica_of


def test_ids_say_which_server_made_them(pair):
    first, second = pair
    session = first.create(prompt=[1, 2, 3])
    assert re.fullmatch(r"sess_[0-9a-f]{24}-r0", session) and replica_of(session) == "r0"
    assert replica_of(second.fork(session)[0]) == "r1"
    assert replica_of(first.go_on(session, [1])["id"].removeprefix("cmpl-")) == "r0"
    assert replica_of(second.go_on(session, [2])["id"].removeprefix("cmpl-")) == "r1"
    talk = second.say(first.create(system="Be brief."), "One?")
    assert replica_of(talk["id"].removeprefix("chatcmpl-")) == "r1"
    raw = first.call("POST", "/v1/completions", {"model": talk["model"], "prompt": [1, 2], "max_tokens": 1})
    assert replica_of(raw["id"].removeprefix("cmpl-")) == "r0"
    response = second.call("POST", "/v1/responses", {"input": "hello", "max_output_tokens": 4})
    assert replica_of(response["id"]) == "r1"
    again = {"input": "more", "previous_response_id": response["id"], "max_output_tokens": 4}
    assert second.call("POST", "/v1/responses", again)["previous_response_id"] == response["id"]


def test_a_session_goes_on_elsewhere_with_the_same_tokens(pair, serve):
    first, second = pair
    with serve(None, None) as alone:
        undisturbed = alone.create(prompt=random_ids(40, "head"))
        moved = first.create(prompt=random_ids(40, "head"))
        for number, member in enumerate([first, second, second, first, second, first]):
            new = random_ids(9, number)
            expected, reply = alone.go_on(undisturbed, new), member.go_on(moved, new)
            assert asked(reply) == asked(expected) and said(reply) == said(expected)
            assert reply["agentcache"]["session"] == moved
    assert [len(member.get(moved)["turns"]) for member in pair] == [6, 6]
    assert first.get(moved)["tokens"] == second.get(moved)["tokens"] == 40 + 6 * 17
    assert second.events(moved)[:4] == ["created", "turn", "moved", "turn"]


def test_a_conversation_with_replies_that_a_template_would_write_otherwise_moves_with_its_exact_ids(pair):
    first, second = pair
    session = first.create(system="You are a careful agent.", metadata={"task": 7}, ttl_s=500)
    one = first.say(session, "Which files are there?")
    two = second.say(session, "Read the first one.")
    assert asked(two)[: len(asked(one)) + 8] == asked(one) + said(one)
    assert two["agentcache"]["source"] == "transcript"
    three = first.say(session, "Why?")
    assert asked(three)[: len(asked(two)) + 8] == asked(two) + said(two)
    states = [member.whole(session) for member in pair]
    for state in states:
        assert state["metadata"] == {"task": 7} and state["ttl_s"] == 500 and len(state["messages"]) == 7
    assert states[0]["messages"] == states[1]["messages"]
    assert states[0]["turns"] == states[1]["turns"] and states[0]["created_at"] == states[1]["created_at"]


def test_what_was_computed_elsewhere_is_told_as_that_and_only_once(pair):
    first, second = pair
    session = first.create(prompt=random_ids(100, "elsewhere"))
    first.go_on(session, [1])
    moved = second.go_on(session, [2])
    assert [found["code"] for found in moved["agentcache"]["findings"]] == ["AC803"]
    assert moved["agentcache"]["miss"]["code"] == "cold"
    after = second.go_on(session, [3])
    assert after["agentcache"]["findings"] == [] and after["agentcache"]["cached_tokens"] >= 96


def test_rolling_back_forking_and_adopting_work_from_both_sides(pair):
    first, second = pair
    session = first.create(prompt=random_ids(20, "branches"))
    kept = first.go_on(session, [1])
    first.go_on(session, [2])
    assert len(second.do(session, "rollback", to_turn=1)["turns"]) == 1
    assert first.turns(session) == 1
    (fork,) = first.fork(session)
    assert second.get(fork)["parent"] == session
    better = second.go_on(fork, [3])
    adopted = first.do(session, "adopt", session=fork)
    assert len(adopted["turns"]) == 2
    assert second.refused(404, "GET", f"/v1/sessions/{fork}")["code"] == "session_not_found"
    assert len(second.do(session, "adopt", session=fork)["turns"]) == 2  # asked again, elsewhere: it is done
    after = second.go_on(session, [4])
    assert asked(after) == asked(better) + said(better) + [4]
    assert asked(better) == asked(kept) + said(kept) + [3]


def test_an_ended_session_is_ended_everywhere(pair):
    first, second = pair
    session = first.create(prompt=[1])
    second.go_on(session, [2])
    first.call("DELETE", f"/v1/sessions/{session}?if_turns=1")
    for member in pair:
        assert member.refused(404, "GET", f"/v1/sessions/{session}")["code"] == "session_not_found"
        member.refused(404, "POST", "/v1/completions", raw_body(session, [3]))
    other = first.create(prompt=[1])
    second.go_on(other, [2])
    first.refused(422, "DELETE", f"/v1/sessions/{other}?if_turns=0")
    assert second.turns(other) == 1


def test_to_another_key_no_session_exists_anywhere(serve, vault):
    keys = {"api_keys": ("mine", "yours")}
    with serve("r0", vault, **keys) as first, serve("r1", vault, **keys) as second:
        first.key, second.key = "mine", "yours"
        session = first.create(prompt=[1, 2, 3])
        unknown = session[:-4] + "0-r0"
        for body in [raw_body(session, [4]), raw_body(unknown, [4])]:
            assert second.refused(404, "POST", "/v1/completions", body)["code"] == "session_not_found"
        errors = [second.refused(404, "GET", f"/v1/sessions/{name}")["message"] for name in (session, unknown)]
        assert errors[0].replace(session, "X") == errors[1].replace(unknown, "X")
        assert second.call("GET", "/v1/sessions")["data"] == []
        second.key = "mine"
        assert said(second.go_on(session, [4])) and first.turns(session) == 1


def test_every_server_lists_all_sessions_of_a_key(pair):
    first, second = pair
    made = {first.create(prompt=[1]), second.create(prompt=[2]), first.create(system="Be brief.")}
    gone = first.create(prompt=[3])
    second.call("DELETE", f"/v1/sessions/{gone}")
    for member in pair:
        listed = [session["id"] for session in member.call("GET", "/v1/sessions")["data"]]
        assert made <= set(listed) and gone not in listed and len(listed) == len(set(listed))


def test_a_turn_that_was_overtaken_has_not_happened(pair):
    first, second = pair
    session = first.create(prompt=random_ids(30, "race"))
    first.go_on(session, [1])
    with first.http.stream("POST", "/v1/completions", json=raw_body(session, [2], 400, stream=True)) as slow:
        lines = slow.iter_lines()
        next(lines)
        quick = second.go_on(session, [3])
        rest = "\n".join(lines)
    assert '"code":"session_busy"' in rest
    assert '"finish_reason":"length"' not in rest and '"finish_reason":"stop"' not in rest
    states = [member.get(session) for member in pair]
    assert states[0]["tokens"] == states[1]["tokens"] == len(asked(quick)) + 8
    assert asked(first.go_on(session, [4])) == asked(quick) + said(quick) + [4]
    error = second.refused(422, "POST", "/v1/completions", raw_body(session, [5], if_turns=2))
    assert error["code"] == "session_diverged"


def test_an_overtaken_turn_that_is_not_streamed_is_told_to_come_again(pair, common):
    first, second = pair
    session = first.create(prompt=random_ids(30, "race 2"))
    quick = []

    def overtake(name, expected):
        common.before_save = None
        quick.append(second.go_on(session, [3]))

    common.before_save = overtake
    reply = first.request("POST", "/v1/completions", raw_body(session, [2]))
    assert reply.status_code == 429 and reply.headers["retry-after"] == "1"
    assert reply.json()["error"]["code"] == "session_busy"
    assert asked(first.go_on(session, [4])) == asked(quick[0]) + said(quick[0]) + [4]


def test_a_turn_whose_session_is_ended_elsewhere_is_gone(pair):
    first, second = pair
    session = first.create(prompt=random_ids(30, "ended"))
    with first.http.stream("POST", "/v1/completions", json=raw_body(session, [2], 300, stream=True)) as slow:
        lines = slow.iter_lines()
        next(lines)
        second.call("DELETE", f"/v1/sessions/{session}")
        rest = "\n".join(lines)
    assert '"code":"session_not_found"' in rest
    first.refused(404, "GET", f"/v1/sessions/{session}")


def test_a_header_finds_a_session_that_is_only_in_the_vault(pair):
    first, second = pair
    session = first.create(system="Be brief.")
    one = first.say(session, "One?")
    body = {key: value for key, value in chat_body("", "Two?").items() if key != "session"}
    two = second.http.post("/v1/chat/completions", json=body, headers={"x-session-id": session}).json()
    assert two["agentcache"]["session"] == session and asked(two)[: len(asked(one))] == asked(one)
    other = second.http.post("/v1/chat/completions", json=body, headers={"x-session-id": "an-agents-own"}).json()
    assert other["agentcache"]["session"] is None


def test_snapshots_are_there_on_every_server_and_for_their_key_alone(serve, vault):
    keys = {"api_keys": ("mine", "yours")}
    with serve("r0", vault, **keys) as first, serve("r1", vault, **keys) as second:
        first.key, second.key = "mine", "mine"
        session = first.create(prompt=random_ids(12, "snapshot"))
        one = first.go_on(session, [1])
        first.do(session, "snapshot", name="kept")
        first.go_on(session, [2])
        restored = second.create(from_snapshot="kept")
        assert replica_of(restored) == "r1"
        assert asked(second.go_on(restored, [3])) == asked(one) + said(one) + [3]
        second.do(restored, "snapshot", name="kept")
        assert first.turns(first.create(from_snapshot="kept")) == 2
        second.key = "yours"
        error = second.refused(404, "POST", "/v1/sessions", {"from_snapshot": "kept"})
        assert error["code"] == "snapshot_not_found"


def test_a_vault_that_does_not_last_keeps_no_snapshots(serve, vault):
    vault.lasting = False
    with serve("r0", vault) as first:
        session = first.create(prompt=[1])
        first.do(session, "snapshot", name="kept")
        assert not [name for name in vault.records if name.id.startswith("snapshot")]
        assert first.create(from_snapshot="kept")


def test_time_without_use_ends_a_session_wherever_it_is(serve, vault):
    with serve("r0", vault) as first, serve("r1", vault) as second:
        session = first.create(prompt=[1], ttl_s=100)
        for member in (first, second):
            member.advance(60)
        first.do(session, "wait", expect_s=1)  # a use, that the vault is told of
        for member in (first, second):
            member.advance(60)
        assert second.turns(session) == 0
        for member in (first, second):
            member.advance(120)
        for member in (first, second):
            assert member.refused(404, "GET", f"/v1/sessions/{session}")["code"] == "session_not_found"


def test_a_shared_store_is_the_vault_unless_it_is_told_not_to_be(serve, tmp_path):
    store = {"store": f"file://{tmp_path}/store?size=64MiB"}
    with serve("r0", None, **store) as first, serve("r1", None, **store) as second:
        session = first.create(prompt=random_ids(20, "store"))
        one = first.go_on(session, [1])
        assert asked(second.go_on(session, [2])) == asked(one) + said(one) + [2]
        with serve("r2", None, **store, store_sessions=False) as third:
            third.refused(404, "GET", f"/v1/sessions/{session}")
            assert "session_vault" not in third.http.get("/metrics").text


def test_figures_tell_what_the_vault_did(pair):
    first, second = pair
    session = first.create(prompt=[1, 2])

    def figure(member, event):
        (line,) = re.findall(
            rf'agentcache_session_vault_total{{event="{event}"}} (\S+)', member.http.get("/metrics").text
        )
        return float(line)

    before = figure(first, "written"), figure(second, "taken_over")
    first.go_on(session, [3])
    second.get(session)
    assert (figure(first, "written"), figure(second, "taken_over")) == (before[0] + 1, before[1] + 1)


def test_uses_are_told_to_the_vault_seldom(serve, vault):
    with serve("r0", vault) as first:
        session = first.create(prompt=[1], ttl_s=1000)
        before = vault.saves
        for _ in range(20):
            first.do(session, "wait", expect_s=1)
        assert vault.saves == before


def test_leases_end_where_a_session_has_gone_on_elsewhere(pair):
    first, second = pair
    session = first.create(prompt=random_ids(64, "lease"))
    first.go_on(session, [1])
    first.do(session, "pin", ttl_s=600)
    assert first.get(session)["pinned_until"] is not None
    second.go_on(session, [2])
    assert second.get(session)["pinned_until"] is None
    assert first.get(session)["pinned_until"] is None
    wait_until(lambda: first.call("GET", "/v1/cache")["pinned"] == 0)  # the engine lets them go in its own time


@pytest.mark.parametrize("damage", ["cut", "other bytes", "empty", "another session's", "another version"])
def test_a_damaged_record_is_no_session_and_no_failure(pair, common, damage):
    first, second = pair
    session, other = first.create(prompt=[1, 2]), first.create(prompt=[3, 4])
    name, kept = common.of(session), common.records[common.of(session)]
    spoiled = {
        "cut": kept._replace(record=kept.record[:-1]),
        "other bytes": kept._replace(record=kept.record[:60] + bytes([kept.record[60] ^ 1]) + kept.record[61:]),
        "empty": kept._replace(record=b""),
        "another session's": common.records[common.of(other)],
        "another version": kept._replace(version=kept.version + 1),
    }
    common.records[name] = spoiled[damage]
    assert second.refused(404, "GET", f"/v1/sessions/{session}")["code"] == "session_not_found"
    second.refused(404, "POST", "/v1/completions", raw_body(session, [3]))
    if damage != "another version":  # it has the version that the first server has: nobody went on
        assert said(first.go_on(session, [5]))
        assert second.turns(session) == 1
    assert second.turns(other) == 0


def test_a_record_of_another_model_is_refused_with_both_names(pair, serve, common, tmp_path):
    from tiny_folder import write_tiny_folder

    first, _ = pair
    session = first.create(system="Be brief.")
    first.say(session, "One?")
    write_tiny_folder(tmp_path / "other", seed=5)
    with serve("r2", common, folder=tmp_path / "other") as third:
        error = third.refused(422, "POST", "/v1/chat/completions", chat_body(session, "Two?"))
        assert error["code"] == "session_diverged" and "model revision" in error["message"]
    assert said(first.say(session, "Two?"))


def test_a_vault_that_lost_everything_gets_it_again(pair, common):
    first, second = pair
    session = first.create(prompt=random_ids(20, "lost"))
    one = first.go_on(session, [1])
    with common.lock:
        common.records.clear()
    two = first.go_on(session, [2])
    assert asked(two) == asked(one) + said(one) + [2]
    assert asked(second.go_on(session, [3])) == asked(two) + said(two) + [3]
    wait_until(lambda: first.turns(session) == 3)
