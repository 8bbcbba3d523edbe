"""Turns of sessions: generated tokens are reused as they were drawn, whatever tokenising them again would make."""

from __future__ import annotations

import pytest
from live import stream
from session_calls import asked, cached, random_ids, said

SYSTEM = "You are a helpful agent."
IM_END = 511


def test_a_turn_goes_on_from_the_exact_ids_of_the_turn_before(client, reference):
    session = client.create(system=SYSTEM)
    first = client.say(session, "read the file", max_tokens=20)
    assert said(first) == reference.greedy(asked(first), 20)
    text = first["choices"][0]["message"]["content"]
    again = client.call("POST", "/tokenize", {"prompt": text})["tokens"]
    assert again != said(first), "this reply tokenises to itself: it proves nothing"

    second = client.say(session, "run the tests", max_tokens=20)
    before = asked(first) + said(first)
    assert asked(second)[: len(before)] == before
    assert cached(second) == len(before) - 1  # the last token was drawn but not run
    assert second["agentcache"]["source"] == "transcript"
    assert second["agentcache"]["session"] == session
    assert said(second) == reference.greedy(asked(second), 20)


def test_a_cut_reply_is_closed_with_the_templates_own_turn_end(client):
    session = client.create(system=SYSTEM)
    first = client.say(session, "again and again", max_tokens=5)
    second = client.say(session, "why")
    new = asked(second)[len(asked(first)) + 5 :]
    expected = client.call("POST", "/tokenize", {"prompt": "<|im_end|>\n<|im_start|>user\nwhy<|im_end|>\n"})["tokens"]
    assert new[: len(expected)] == expected


def test_an_end_token_that_the_template_prints_is_kept_once(client):
    session = client.create(system=SYSTEM)
    end = {"logit_bias": {str(IM_END): 100}, "stop_token_ids": [IM_END], "max_tokens": 3}
    first = client.say(session, "say nothing", **end)
    assert said(first) == [] and first["choices"][0]["finish_reason"] == "stop"
    second = client.say(session, "and now")
    assert asked(second)[: len(asked(first)) + 1] == [*asked(first), IM_END]
    assert asked(second)[len(asked(first)) + 1] != IM_END


def test_an_end_token_that_the_template_does_not_print_is_not_kept(client, reference):
    session = client.create(system=SYSTEM)
    reply = client.say(client.create(system=SYSTEM), "stop early", max_tokens=6)
    first = client.say(session, "stop early", stop_token_ids=[said(reply)[3]])
    assert said(first) == said(reply)[:3]
    second = client.say(session, "go on", max_tokens=4)
    before = asked(first) + said(first)
    assert asked(second)[: len(before) + 1] == [*before, IM_END]
    assert said(second) == reference.greedy(asked(second), 4)


def test_a_reply_cut_by_a_stop_string_inside_a_token_keeps_the_tokens_before_it(client):
    whole = client.say(client.create(system=SYSTEM), "read the file", max_tokens=24)
    tokenizer = client.server.engine.tokenizer
    texts = [tokenizer.token_text(token) for token in said(whole)]
    place = next(i for i, text in enumerate(texts) if i > 3 and len(text) > 2 and text.isascii())
    stop = texts[place][-2:]
    session = client.create(system=SYSTEM)
    first = client.say(session, "read the file", max_tokens=24, stop=[stop])
    shown = first["choices"][0]["message"]["content"]
    assert first["choices"][0]["stop_reason"] == stop and stop not in shown
    second = client.say(session, "go on", max_tokens=2)
    kept = [token for i, token in enumerate(said(whole)[:place]) if stop not in "".join(texts[: i + 1])]
    assert asked(second)[: len(asked(first)) + len(kept)] == asked(first) + kept
    assert f"{shown}<|im_end|>" in tokenizer.decode(asked(second), skip_special_tokens=False)


def test_streamed_and_whole_turns_make_the_same_session(client):
    sessions = [client.create(system=SYSTEM) for _ in range(2)]
    body = {"messages": [{"role": "user", "content": "import pages"}], "temperature": 0, "max_tokens": 9}
    chunks = stream(client.server, "/v1/chat/completions", {**body, "session": sessions[0], "return_token_ids": True})
    client.chat(**body, session=sessions[1])
    assert chunks[-1]["agentcache"]["session"] == sessions[0]
    after = [client.say(session, "more") for session in sessions]
    assert asked(after[0]) == asked(after[1]) and said(after[0]) == said(after[1])


def test_a_raw_session_is_the_ids_that_were_sent_and_drawn(client, reference):
    parts = [random_ids(20, "raw"), random_ids(7, "more"), []]
    session = client.create(prompt=parts[0])
    known = list(parts[0])
    for part in ([], *parts[1:]):
        known += part
        reply = client.go_on(session, part, 11)
        assert asked(reply) == known
        assert said(reply) == reference.greedy(known, 11)
        known += said(reply)
    state = client.get(session)
    assert state["tokens"] == len(known) and state["kind"] == "raw" and len(state["turns"]) == 3


def test_a_session_begun_with_messages_replies_to_them(client):
    session = client.create(messages=[{"role": "user", "content": "hello"}])
    reply = client.chat([], session=session)
    assert reply["usage"]["completion_tokens"] == 8
    error = client.refused(400, "POST", "/v1/chat/completions", {"session": session, "messages": []})
    assert error["param"] == "messages"


def test_a_failed_turn_leaves_the_session_as_it_was(client, reference):
    session = client.create(system=SYSTEM)
    first = client.say(session, "one")
    before = client.get(session)
    client.call("POST", "/debug/fault", {"site": "forward", "at": 3})
    body = {"session": session, "messages": [{"role": "user", "content": "two"}], "max_tokens": 8}
    assert client.refused(500, "POST", "/v1/chat/completions", body)["code"] == "engine_error"
    bad = {"session": session, "messages": [{"role": "nobody", "content": "x"}]}
    client.refused(400, "POST", "/v1/chat/completions", bad)
    too_long = {"session": session, "messages": [{"role": "user", "content": "x y " * 5000}]}
    assert client.refused(400, "POST", "/v1/chat/completions", too_long)["code"] == "context_length_exceeded"
    after = client.get(session)
    assert {k: v for k, v in after.items() if k != "expires_at"} == {
        k: v for k, v in before.items() if k != "expires_at"
    }
    second = client.say(session, "two")
    assert asked(second)[: len(asked(first)) + 8] == asked(first) + said(first)
    assert said(second) == reference.greedy(asked(second), 8)


@pytest.mark.parametrize("header", ["x-session-id", "X-Claude-Code-Session-Id"])
def test_a_header_names_a_session_of_ours_or_nothing(client, header):
    session = client.create(system=SYSTEM)
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    http = client.server.http
    named = http.post("/v1/chat/completions", json=body, headers={header: session}).json()
    assert named["agentcache"]["session"] == session
    foreign = http.post("/v1/chat/completions", json=body, headers={header: "their-own-id"}).json()
    assert foreign["agentcache"]["session"] is None
    assert len(client.get(session)["turns"]) == 1
