"""HAR archives: which entries are requests, what was sent, what was answered, and where in the archive it stands."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.lint.readers.kinds import open_input
from agentcache.lint.readers.sse import events_of
from agentcache.lint.records import Record, Unreadable

CHAT = "https://api.openai.com/v1/chat/completions"
MESSAGES = "https://api.anthropic.com/v1/messages?beta=true"
RESPONSES = "https://api.openai.com/v1/responses"
HI = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def entry(url: str, body: Any, answer: Any = None, **fields: Any) -> dict[str, Any]:
    """An entry as Chrome writes it."""
    request = {
        "method": "POST",
        "url": url,
        "httpVersion": "http/2.0",
        "headers": [{"name": "Content-Type", "value": "application/json"}, *fields.pop("headers", [])],
        "queryString": [],
        "postData": {"mimeType": "application/json", "text": body if isinstance(body, str) else json.dumps(body)},
    }
    text = answer if isinstance(answer, str) else json.dumps(answer)
    response = {"status": 200, "statusText": "", "headers": [], "content": {"size": 1, "mimeType": "", "text": text}}
    response |= fields.pop("response", {})
    return {
        "startedDateTime": "2026-11-29T10:30:05.000Z",
        "time": 3,
        "request": request,
        "response": response,
        **fields,
    }


def archive(*entries: Any, **log: Any) -> bytes:
    pages = [{"id": "page_1", "title": 'a "log": {"entries": [', "pageTimings": {}}]
    whole = {
        "log": {"version": "1.2", "creator": {"name": "WebInspector"}, "pages": pages, "entries": [*entries], **log}
    }
    return json.dumps(whole, indent=2).encode()


def read(data: bytes, file: str = "x.har") -> list[Record | Unreadable]:
    return list(open_input(io.BytesIO(data), file))


def sse(*events: Any, named: bool = False) -> str:
    lines = [
        (f"event: {value['type']}\n" if named else "")
        + f"data: {value if value == '[DONE]' else json.dumps(value)}\n\n"
        for value in events
    ]
    return "".join(lines)


def test_only_posts_to_language_models_are_requests():
    page = entry("https://example.org/chat/completions.html", "x")
    page["request"]["method"] = "GET"
    found = read(
        archive(
            page,
            entry("https://example.org/v1/embeddings", {"input": "x"}),
            entry(CHAT, HI),
            entry("https://example.org/upload", "a=b"),
            entry("https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=1", HI),
            {"request": {"method": "POST", "url": CHAT}},
            "odd",
            None,
        )
    )
    assert [(record.line, record.dialect) for record in found] == [(3, "chat"), (5, "chat")]


@pytest.mark.parametrize("file", ["x.har", "x.json", "-", "x.jsonl"])
@pytest.mark.parametrize("indent", [None, 2])
def test_it_is_known_by_its_bytes_spread_or_in_one_line(file, indent):
    data = json.dumps(json.loads(archive(entry(CHAT, HI))), indent=indent).encode()
    assert [record.body["messages"] for record in read(data, file)] == [HI["messages"]]


@pytest.mark.parametrize("file", ["x.har", "x.json", "-"])
def test_what_comes_before_the_log_is_passed_over(file):
    data = b'{\n"comment": {"log": [1]}, "log": {"entries": ' + json.dumps([entry(CHAT, HI)]).encode() + b"}}"
    assert [record.line for record in read(data, file)] == [1]


def test_places_name_the_entry_and_the_body_in_it():
    (record,) = read(archive({}, entry(CHAT, HI)))
    place = record.places.find(("messages", 0, "content"), 1)[:2]
    assert place == ("log.entries[1].request.postData.text: messages[0].content", 1)
    assert record.source is None, "a body inside of a text is not written back"


def test_bodies_may_be_base64():
    (record,) = read(archive(_encoded(entry(CHAT, "{}"), json.dumps(HI))))
    assert record.body["messages"] == HI["messages"]
    (bad,) = read(archive(_encoded(entry(CHAT, "{}"), "{", damaged=True)))
    assert isinstance(bad, Unreadable) and "not valid base64" in bad.reason


def _encoded(found: dict[str, Any], body: str, *, damaged: bool = False) -> dict[str, Any]:
    text = base64.b64encode(body.encode()).decode()
    found["request"]["postData"] |= {"text": text[1:] if damaged else text, "encoding": "base64"}
    return found


def test_a_broken_body_is_named_and_stops_nothing():
    bad, good = read(archive(entry(CHAT, '{"messages": ['), entry(CHAT, HI)))
    assert isinstance(bad, Unreadable) and bad.line == 1
    assert bad.reason.startswith("log.entries[0].request.postData.text: not valid JSON")
    assert isinstance(good, Record)


def test_requests_that_were_refused_are_left_out():
    found = read(archive(entry(CHAT, HI, response={"status": 429}), entry(CHAT, HI, response={"status": 0})))
    assert [record.line for record in found] == [2]


def test_whole_answers_give_reply_and_usage():
    usage = {"prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": 16}}
    answer = {"choices": [{"message": {"role": "assistant", "content": "Hello"}}], "usage": usage}
    (record,) = read(archive(entry(CHAT, HI, answer)))
    assert record.reply.message["content"] == "Hello"
    assert (record.usage.prompt_tokens, record.usage.cached_tokens) == (20, 16)


@pytest.mark.parametrize("encoded", [False, True])
def test_streams_of_chat_completions_are_put_together(encoded):
    text = sse(
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]},
        {"choices": [{"index": 0, "delta": {"content": "lo"}}]},
        {"choices": [], "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}},
        "[DONE]",
    )
    content = {"text": text}
    if encoded:
        content = {"text": base64.b64encode((": ping\n\n" + text).encode()).decode(), "encoding": "base64"}
    (record,) = read(archive(entry(CHAT, HI, response={"content": content})))
    assert record.reply.message["content"] == "Hello"
    assert record.usage.cached_tokens == 0


def test_streams_of_messages_are_put_together():
    body = {"model": "claude", "max_tokens": 9, "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]}
    usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 7}
    text = sse(
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
        named=True,
    )
    headers = [
        {"name": "anthropic-version", "value": "2023-06-01"},
        {"name": "x-claude-code-session-id", "value": "s1"},
    ]
    (record,) = read(archive(entry(MESSAGES, body, text, headers=headers)))
    assert (record.dialect, record.session) == ("anthropic", "s1")
    assert record.body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert record.reply.message["content"] == "Hello"
    assert (record.usage.prompt_tokens, record.usage.cached_tokens) == (50, 40)
    assert record.places.find(("messages", 0, "content")).path.endswith("postData.text: system")


def test_streams_of_responses_are_put_together_and_gone_on_from():
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello"}],
    }
    usage = {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 4}}
    text = sse(
        {"type": "response.created", "response": {"id": "resp_1", "output": []}},
        {"type": "response.output_text.delta", "delta": "Hello"},
        {"type": "response.completed", "response": {"id": "resp_1", "output": [message], "usage": usage}},
        named=True,
    )
    second = {"input": "More", "previous_response_id": "resp_1"}
    first, later = read(archive(entry(RESPONSES, {"input": "Hi"}, text), entry(RESPONSES, second)))
    assert (first.dialect, first.usage.cached_tokens) == ("responses", 4)
    assert [message["role"] for message in later.body["messages"]] == ["user", "assistant", "user"]


def test_an_archive_that_ends_in_the_middle_gives_what_was_there():
    whole = archive(entry(CHAT, HI), entry(CHAT, HI))
    first, last = read(whole[: whole.rindex(b'"startedDateTime"') - 4])
    assert isinstance(first, Record) and isinstance(last, Unreadable)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"log": 5}', b'{"log": {"entries": {}}}', b'{"log": {', b"text"])
def test_what_is_no_archive_says_so(data):
    (only,) = read(data)
    assert isinstance(only, Unreadable) and ("HAR" in only.reason or "log.entries" in only.reason)


def test_events_are_cut_at_blank_lines_of_any_kind_and_nowhere_else():
    text = 'event: a\r\ndata: {"x":\r\ndata:  "\u2028y"}\r\n\r\n: note\n\ndata: [DONE]\n\nid: 7\ndata:{"type":"b"}'
    assert events_of(text) == [{"type": "a", "x": "\u2028y"}, {"type": "b"}]


ANY = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["POST", CHAT, "base64", json.dumps(HI)]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["log", "entries", "request", "method", "url", "postData", "text", "encoding", "response", "content", "headers",
             "name", "value", "status"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=15,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(ANY, max_size=3), st.sampled_from(["x.har", "-"]))
def test_any_entries_give_records_or_reasons(entries, file):
    spoiled = [entry(CHAT, HI, entries), *entries]
    for record in read(archive(*spoiled), file):
        assert isinstance(record, (Record, Unreadable))
