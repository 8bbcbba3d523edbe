"""The Messages API over HTTP: its errors, its streams that end early, and what ends a reply."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import httpx
import pytest
from live import drain, live_server
from messages_calls import TOOL
from tiny_folder import write_tiny_folder

HI = {"max_tokens": 5, "messages": [{"role": "user", "content": "Read the file."}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_folder(folder)
    with live_server(
        folder, num_pages=256, api_keys=("mine", "yours"), admin_keys=("root",), max_body=200_000, keep_alive_s=0.05
    ) as running:
        yield running
        drain(running)


def send(
    server, body: Any = HI, path: str = "/v1/messages", key: str | None = "mine", **options: Any
) -> httpx.Response:
    headers = {"authorization": ""} | ({} if key is None else {"x-api-key": key}) | {"anthropic-version": "2023-06-01"}
    return server.http.request(options.pop("method", "POST"), path, json=body, headers=headers | options)


def events(reply: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in reply.text.split("\n") if line.startswith("data: ")]


@pytest.mark.parametrize(
    ("options", "status", "kind"),
    [
        ({"key": None}, 401, "authentication_error"),
        ({"key": "wrong"}, 401, "authentication_error"),
        ({"path": "/v1/messages/count_tokens", "key": None}, 401, "authentication_error"),
        ({"method": "GET"}, 405, "invalid_request_error"),
        ({"path": "/v1/messages/batches"}, 404, "not_found_error"),
        ({"body": HI | {"model": "another"}}, 404, "not_found_error"),
        ({"body": HI | {"metadata": {"x": "x" * 300_000}}}, 413, "request_too_large"),
        ({"body": [HI]}, 400, "invalid_request_error"),
        ({"body": HI | {"temperature": "hot"}}, 400, "invalid_request_error"),
        ({"body": HI | {"stream": True, "stop_sequences": "x"}}, 400, "invalid_request_error"),
        ({"content-type": "text/plain"}, 415, "invalid_request_error"),
    ],
)
def test_every_refusal_has_anthropics_envelope_and_the_id_of_its_header(server, options, status, kind):
    reply = send(server, **options)
    assert reply.status_code == status, reply.text
    told = reply.json()
    assert set(told) == {"type", "error", "request_id"} and told["type"] == "error"
    assert told["error"]["type"] == kind and told["error"]["message"]
    assert told["request_id"] == reply.headers["request-id"]
    assert int(reply.headers["content-length"]) == len(reply.content)


def test_errors_elsewhere_keep_their_own_envelope(server):
    assert "request_id" not in send(server, path="/v1/chat/completions", key=None).json()


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        (
            {"tools": [TOOL | {"input_schema": {"type": "nothing"}}], "tool_choice": {"type": "any"}},
            "tools: ",
        ),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "nothing"}}}}, "output_config.format"),
        ({"priority": "first"}, "priority"),
    ],
)
def test_what_the_translated_request_is_refused_for_is_told_in_its_clients_names(server, fields, place):
    reply = send(server, HI | fields)
    assert reply.status_code == 400
    message = reply.json()["error"]["message"]
    assert place in message and "function" not in message and "response_format" not in message, message


def test_a_prompt_that_is_too_long_is_told_as_coding_agents_look_for_it(server):
    reply = send(server, HI | {"messages": [{"role": "user", "content": "Read the file. " * 1000}]})
    error = reply.json()["error"]
    assert reply.status_code == 400 and error["message"].startswith("prompt is too long: ")
    assert error["details"] == {"error_code": "context_length_exceeded"}


def test_keys_are_kept_apart_and_the_three_kinds_of_input_add_up(server):
    body = HI | {"messages": [{"role": "user", "content": "the cache keeps pages " * 20}]}
    counted = send(server, body, "/v1/messages/count_tokens").json()["input_tokens"]
    first, again, other = (send(server, body, key=key).json() for key in ("mine", "mine", "yours"))
    for reply in (first, again, other):
        usage = reply["usage"]
        read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        assert usage["input_tokens"] + read + written == counted
        assert usage["cache_creation"]["ephemeral_5m_input_tokens"] == written
    assert first["usage"]["cache_creation_input_tokens"] == counted - counted % 16
    assert again["usage"]["cache_read_input_tokens"] == counted - 1 and other["usage"]["cache_read_input_tokens"] == 0
    assert other["agentcache"]["miss"]["code"] == "cold"
    assert other["agentcache"]["miss"]["path"] == "messages[0].content"


def test_the_cache_is_filled_without_generating(server):
    body = HI | {"messages": [{"role": "user", "content": "again and again the same long beginning " * 9}]}
    filled = send(server, body | {"max_tokens": 0}).json()
    assert filled["content"] == [] and filled["stop_reason"] == "max_tokens" and filled["usage"]["output_tokens"] == 0
    total = sum(filled["usage"][f"{kind}input_tokens"] for kind in ("", "cache_read_", "cache_creation_"))
    assert send(server, body).json()["usage"]["cache_read_input_tokens"] >= total - 16


def test_a_stop_sequence_ends_the_reply_and_is_named(server):
    body = HI | {"max_tokens": 40, "temperature": 0}
    text = send(server, body).json()["content"][0]["text"]
    stop = text[10:13]
    reply = send(server, body | {"stop_sequences": ["never this", stop]}).json()
    assert (reply["stop_reason"], reply["stop_sequence"]) == ("stop_sequence", stop)
    assert reply["content"][0]["text"] == text[: text.index(stop)]
    streamed = events(send(server, body | {"stop_sequences": [stop], "stream": True}))
    assert streamed[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": stop}
    assert (
        "".join(event["delta"]["text"] for event in streamed if event["type"] == "content_block_delta")
        == text[: text.index(stop)]
    )


def test_a_stream_is_kept_alive_while_nothing_comes(server):
    fault = {"site": "forward", "at": 1, "delay_ms": 300}
    assert server.http.post("/debug/fault", json=fault, headers=server.as_operator).status_code == 200
    kinds = [event["type"] for event in events(send(server, HI | {"stream": True}))]
    assert kinds[:3] == ["message_start", "ping", "ping"]
    assert kinds[-1] == "message_stop"


def test_a_stream_that_fails_after_its_beginning_ends_with_an_error_that_clients_raise(server):
    told = []

    def read(client: anthropic.Anthropic) -> None:
        model = server.engine.info.model_name
        for event in client.messages.create(model=model, max_tokens=400, messages=HI["messages"], stream=True):
            told.append(event.type)
            if told.count("content_block_delta") == 1 and event.type == "content_block_delta":
                fault = {"site": "forward", "at": 1}
                server.http.post("/debug/fault", json=fault, headers=server.as_operator)

    made = anthropic.Anthropic(base_url=server.url, api_key="mine", max_retries=0)
    with made as client, pytest.raises(anthropic.APIStatusError) as failed:
        read(client)
    assert failed.value.type == "api_error" and "message_stop" not in told


def test_a_turn_of_a_thread_that_fails_can_be_sent_again_and_one_at_a_time_is_generated(server):
    first = send(server, HI | {"thread": {"type": "create"}}).json()
    following = HI | {"thread": {"type": "continue", "previous_message_id": first["id"]}}
    assert send(server, following | {"diagnostics": {"previous_message_id": 7}}).status_code == 400
    broken = {"site": "forward", "at": 1}
    assert server.http.post("/debug/fault", json=broken, headers=server.as_operator).status_code == 200
    assert send(server, following).status_code == 500
    slow = {"site": "forward", "at": 1, "delay_ms": 400}
    assert server.http.post("/debug/fault", json=slow, headers=server.as_operator).status_code == 200
    with ThreadPoolExecutor(2) as pool:
        replies = list(pool.map(lambda _: send(server, following), range(2)))
    assert sorted(reply.status_code for reply in replies) == [200, 400]
    refused = next(reply for reply in replies if reply.status_code == 400).json()["error"]
    assert refused["details"]["error_code"] == "thread_continue_in_flight"
    assert send(server, following, key="yours").status_code == 404  # a thread is its key's own


def test_the_same_request_many_times_at_once_gets_the_same_reply(server):
    body = HI | {"temperature": 0, "max_tokens": 12, "thread": {"type": "create"}}
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: send(server, body).json(), range(8)))
    assert len({json.dumps(reply["content"]) for reply in replies}) == 1
    assert len({reply["id"] for reply in replies}) == 8
