"""Traces that a server wrote: the ids in them are what is counted, and predictions are what the server measured."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from saying import Saying, saying_server

from agentcache.lint.cli import main
from agentcache.lint.readers.kinds import open_input
from agentcache.lint.readers.traces import read_trace
from agentcache.lint.records import Record, Unreadable

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {}}}}}


def line(**fields: Any) -> dict[str, Any]:
    return {
        "format": "agentcache-trace",
        "version": 1,
        "route": "/v1/chat/completions",
        "session": None,
        "model": "m",
        "request": {"messages": [{"role": "user", "content": "Hi"}], "model": None},
        "prompt_token_ids": [1, 2, 3],
        "choices": [{"index": 0, "token_ids": [4, 5], "message": {"role": "assistant", "content": "Hello"}}],
        "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
        **fields,
    }


def read(*lines: Any) -> list[Record | Unreadable]:
    return list(open_input(io.BytesIO(b"".join(json.dumps(value).encode() + b"\n" for value in lines)), "t.jsonl"))


def test_a_line_gives_prompt_reply_and_usage():
    (record,) = read(line(session="s1"))
    assert [*record.prompt_ids] == [1, 2, 3] and [*record.reply.token_ids] == [4, 5]
    assert record.reply.message["content"] == "Hello"
    assert (record.usage.prompt_tokens, record.usage.cached_tokens) == (3, 2)
    assert (record.session, record.dialect, record.source, record.body["model"]) == ("s1", "chat", None, "m")
    assert record.places.find(("messages", 0, "content"), 1)[:2] == ("request.messages[0].content", 1)


def test_what_the_prompt_says_is_preferred_to_what_was_sent():
    told = {"messages": [{"role": "user", "content": "Hi"}, {"role": "user", "content": "there"}]}
    (record,) = read(line(conversation=told))
    assert len(record.body["messages"]) == 2
    assert record.places.find(("messages", 1, "content")).path == "conversation.messages[1].content"


def test_bodies_are_read_by_the_route_that_they_were_sent_to():
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    (record,) = read(line(route="/v1/messages", request=body))
    assert record.dialect == "anthropic"
    (raw,) = read(line(route="/v1/completions", request={"prompt": "Once"}, choices=[{"text": "x", "token_ids": [9]}]))
    assert (raw.dialect, raw.body["prompt"], [*raw.reply.token_ids], raw.reply.message) == (
        "completions",
        "Once",
        [9],
        None,
    )


def test_salts_and_tenants_keep_requests_apart():
    found = read(line(), line(cache_salt="a"), line(tenant=0), line(tenant=1), line(tenant=1, cache_salt="a"))
    assert len({record.body.get("cache_salt") for record in found}) == 5


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"version": 2}, "version"),
        ({"prompt_token_ids": []}, "prompt_token_ids"),
        ({"prompt_token_ids": [1, "2"]}, "prompt_token_ids"),
        ({"prompt_token_ids": [-1]}, "prompt_token_ids"),
        ({"prompt_token_ids": [True]}, "prompt_token_ids"),
        ({"request": None}, "request is missing"),
        ({"request": {"messages": 5}}, "request.messages"),
    ],
)
def test_a_line_that_is_not_whole_is_named(fields, word):
    bad, good = read(line(**fields), line())
    assert isinstance(bad, Unreadable) and word in bad.reason and isinstance(good, Record)


def test_lines_of_traces_and_requests_may_be_mixed():
    plain = {"messages": [{"role": "user", "content": "Hi"}]}
    assert [record.line for record in read(line(), plain, line(), {"body": plain})] == [1, 2, 3, 4]
    assert [type(record) for record in read(plain, line())] == [Record, Record]
    assert [*read(plain, line())[1].prompt_ids] == [1, 2, 3]
    first, second = read([plain, line()])
    assert first.prompt_ids is None and [*second.prompt_ids] == [1, 2, 3]


ANY = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=3)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*line(), "conversation", "tenant", "cache_salt"]), ANY | st.dictionaries(st.text(), ANY)
    )
)
def test_any_values_give_a_record_or_a_reason(fields):
    assert isinstance(read_trace(line(**fields), "t.jsonl", 1), (Record, Unreadable))


# -- a real server's


def written(path: Path, count: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 10
    while (data := path.read_bytes()).count(b"\n") < count:
        assert time.monotonic() < deadline, data
        time.sleep(0.01)
    return [json.loads(found) for found in data.splitlines()]


def traffic(saying: Saying) -> int:
    """Sessions, forks and tools, whole histories, three protocols and raw prompts; how many prompts that were."""
    server = saying.server
    body = {"messages": [{"role": "system", "content": "Add. " * 40}], "tools": [TOOL]}
    parent = server.http.post("/v1/sessions", json=body).json()["id"]
    saying.says('<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>')
    called = server.chat([{"role": "user", "content": "2 + 2?"}], session=parent)
    (call,) = called["choices"][0]["message"]["tool_calls"]
    saying.says("It is 4, and that is the sum of what you gave me, as far as I can tell.")
    server.chat([{"role": "tool", "tool_call_id": call["id"], "content": "4"}], session=parent)
    forked = server.http.post(f"/v1/sessions/{parent}/fork", json={"n": 2}).json()["sessions"]
    for number, session in enumerate([*(fork["id"] for fork in forked), parent]):
        server.chat([{"role": "user", "content": f"And {number}? " * 10}], session=session)
    messages = [{"role": "system", "content": "Be brief. " * 30}, {"role": "user", "content": "Hi"}]
    for number in range(3):
        said = server.chat(messages)["choices"][0]["message"]
        messages = [*messages, said, {"role": "user", "content": f"More {number}"}]
    system = "Be brief. " * 30
    server.http.post("/v1/messages", json={"max_tokens": 50, "system": system, "messages": messages[1:2]})
    first = server.http.post("/v1/responses", json={"input": "Hi", "instructions": system}).json()
    again = {"input": "Go on", "instructions": system, "previous_response_id": first["id"]}
    server.http.post("/v1/responses", json=again)
    server.complete("Once upon a time " * 10, max_tokens=20)
    server.complete(["Once upon a time " * 10 + "there", "x"], max_tokens=20)
    server.complete([5, 6, 7, 8, 9] * 10, max_tokens=20)
    return 15


def test_what_is_predicted_of_a_trace_is_what_was_measured(tmp_path, capsys):
    path = tmp_path / "run.jsonl"
    with saying_server(tmp_path, trace=path) as saying:
        count = traffic(saying)
        lines = written(path, count)
    capsys.readouterr()
    main([str(path), "--output-format", "json", "--statistics", "--ignore", "AC5"])
    told = json.loads(capsys.readouterr().out)
    assert told["findings"] == []
    assert [each["cached_tokens"] for each in told["statistics"]["predictions"]] == [
        each["usage"]["prompt_tokens_details"]["cached_tokens"] for each in lines
    ]
    assert [each["prompt_tokens"] for each in told["statistics"]["predictions"]] == [
        len(each["prompt_token_ids"]) for each in lines
    ]
