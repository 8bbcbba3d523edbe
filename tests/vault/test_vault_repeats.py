"""A turn that is sent again under its ``turn_id``: answered as it was answered, wherever it is sent, and made once."""

from __future__ import annotations

import pytest
from live import events
from session_calls import asked, chat_body, random_ids, raw_body, said

COSTS = ("usage", "choices", "id", "created", "prompt_token_ids")


def same_answer(one, two):
    assert {name: one[name] for name in COSTS} == {name: two[name] for name in COSTS}
    for name in ("session", "source", "prompt_tokens", "cached_tokens", "computed_tokens", "miss"):
        assert one["agentcache"][name] == two["agentcache"][name], name


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("if_turns", [None, 1])
def test_a_raw_turn_is_answered_again(pair, at, if_turns):
    first, again = pair[0], pair[at]
    session = first.create(prompt=random_ids(33, f"{at}{if_turns}"))
    first.go_on(session, [1])
    fields = {"turn_id": "gateway.1"} | ({} if if_turns is None else {"if_turns": if_turns})
    one = first.go_on(session, [5, 6], **fields)
    computed = again.call("GET", "/v1/cache")
    for _ in range(2):
        same_answer(one, again.go_on(session, [5, 6], **fields))
    assert again.call("GET", "/v1/cache") == computed, "nothing was computed"
    assert pair[1 - at].turns(session) == 2
    after = again.go_on(session, [7], turn_id="gateway.2")
    assert asked(after) == asked(one) + said(one) + [7]


@pytest.mark.parametrize("at", [0, 1])
def test_a_conversations_turn_is_answered_again_in_the_same_words(pair, at):
    first, again = pair[0], pair[at]
    session = first.create(system=f"Be brief, {at}.")
    first.say(session, "One?", turn_id="a")
    one = first.say(session, "Two?", turn_id="b")
    same_answer(one, again.say(session, "Two?", turn_id="b"))
    assert again.turns(session) == 2


def test_a_stream_is_answered_again_as_a_stream(pair):
    first, second = pair
    session = first.create(prompt=random_ids(21, "stream"))
    body = raw_body(session, [9], turn_id="s", stream=True, stream_options={"include_usage": True})
    told = []
    for member in (first, second):
        with member.http.stream("POST", "/v1/completions", json=body) as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            told.append(events(reply))
    texts = ["".join(choice["text"] for event in each for choice in event["choices"]) for each in told]
    ids = [[i for event in each for choice in event["choices"] for i in choice["token_ids"]] for each in told]
    assert texts[0] == texts[1] and ids[0] == ids[1] and told[0][-1]["usage"] == told[1][-1]["usage"]
    assert told[0][0]["id"] == told[1][0]["id"] and first.turns(session) == 1


def test_a_turn_whose_input_differs_is_another_turn(pair):
    first, second = pair
    session = first.create(prompt=random_ids(21, "differs"))
    first.go_on(session, [1], turn_id="x", if_turns=0)
    error = second.refused(422, "POST", "/v1/completions", raw_body(session, [2], turn_id="x", if_turns=0))
    assert error["code"] == "session_diverged"
    second.go_on(session, [2], turn_id="x")
    assert first.turns(session) == 2


def test_a_turn_that_somebody_went_on_from_is_not_answered_again(pair):
    first, second = pair
    session = first.create(prompt=random_ids(21, "went on"))
    first.go_on(session, [1], turn_id="x", if_turns=0)
    second.go_on(session, [2])
    error = first.refused(422, "POST", "/v1/completions", raw_body(session, [1], turn_id="x", if_turns=0))
    assert error["code"] == "session_diverged" and first.turns(session) == 2


def test_a_turn_that_was_rolled_back_is_made_again(pair):
    first, second = pair
    session = first.create(prompt=random_ids(21, "rolled back"))
    one = first.go_on(session, [1], turn_id="x")
    second.do(session, "rollback", to_turn=0)
    two = first.go_on(session, [1], turn_id="x")
    assert said(one) == said(two) and one["id"] != two["id"] and second.turns(session) == 1


def test_log_probabilities_are_not_kept_and_not_made_up(pair):
    first, second = pair
    session = first.create(system="Figures.")
    first.say(session, "One?", turn_id="x", logprobs=True)
    error = second.refused(422, "POST", "/v1/chat/completions", chat_body(session, "One?", turn_id="x", logprobs=True))
    assert error["param"] == "turn_id" and "log-probabilities" in error["message"]
    assert first.turns(session) == 1


@pytest.mark.parametrize("stop", [["\u0120"], None])
def test_how_a_turn_ended_is_told_again(pair, stop):
    first, second = pair
    session = first.create(prompt=random_ids(21, f"ended {stop}"))
    whole = first.go_on(session, [1], 24)
    first.do(session, "rollback", to_turn=0)
    text = whole["choices"][0]["text"]
    fields = {"turn_id": "x"} | ({} if stop is None else {"stop": [text[6:8]]})
    one = first.go_on(session, [1], 24, **fields)
    assert one["choices"][0]["finish_reason"] == ("length" if stop is None else "stop")
    two = second.go_on(session, [1], 24, **fields)
    for name in ("text", "finish_reason", "stop_reason"):
        assert one["choices"][0][name] == two["choices"][0][name]
