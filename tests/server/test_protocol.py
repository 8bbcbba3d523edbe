"""What the HTTP layer does by itself: framing, keys, limits, slow and vanishing clients, shutdown."""

from __future__ import annotations

import dataclasses
import json
import socket
import struct
import threading
import time

import httpx
import pytest
from live import events, live_engine, raw_request, stream
from stub_engine import Script, StubEngine

from agentcache.settings import Settings

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = [{"role": "user", "content": "hi"}]


@pytest.fixture
def engine():
    return StubEngine()


@pytest.fixture
def server(engine):
    with live_engine(engine, Settings(model="stub", max_body=4096, enable_test_hooks=True)) as running:
        yield running


def wait_for(condition, seconds=1.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.005)


# -- shapes -----------------------------------------------------------------------------------------------------------


def test_a_chat_stream_has_role_deltas_finish_and_cache_report(server):
    chunks = stream(server, CHAT, {"messages": HELLO, "max_tokens": 5})
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "abcde"
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["agentcache"]["prompt_tokens"] == len("user:hi\n")
    assert all("agentcache" not in chunk for chunk in chunks[:-1])
    assert all("usage" not in chunk for chunk in chunks)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1


@pytest.mark.parametrize("path,prompt", [(CHAT, {"messages": HELLO}), (TEXT, {"prompt": "hi there"})])
def test_usage_comes_in_one_more_chunk_when_asked_for(server, path, prompt):
    whole = server.http.post(path, json={**prompt, "max_tokens": 4}).json()
    chunks = stream(server, path, {**prompt, "max_tokens": 4, "stream_options": {"include_usage": True}})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-1]["agentcache"] == whole["agentcache"]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert all("agentcache" not in chunk for chunk in chunks[:-1])


def test_each_choice_of_a_stream_is_whole_and_the_report_rides_on_the_last_chunk(server):
    body = {"prompt": ["one", "two!"], "n": 2, "max_tokens": 3, "return_token_ids": True}
    chunks = stream(server, TEXT, body)
    for choice in range(4):
        mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice]
        assert "".join(c["text"] for c in mine) == "abc"
        assert [token for c in mine for token in c["token_ids"]] == list(b"abc")
        assert [c["finish_reason"] for c in mine][-1] == "length"
    assert chunks[0]["prompt_token_ids"] == [list(b"one"), list(b"two!")]
    assert all("prompt_token_ids" not in chunk for chunk in chunks[1:])
    assert chunks[-1]["agentcache"]["prompt_tokens"] == 7
    assert all("agentcache" not in chunk for chunk in chunks[:-1])


def test_list_prompts_with_n_are_prompt_major_and_count_a_prompt_once(server):
    reply = server.complete(["one", "two!"], n=2, max_tokens=3)
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]
    assert reply["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 12,
        "total_tokens": 19,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert reply["agentcache"]["computed_tokens"] == (3 + 2) + 3 + (4 + 2) + 3


def test_echo_puts_the_prompt_first_with_its_logprobs(server):
    fields = {"echo": True, "logprobs": 1, "max_tokens": 2}
    whole = server.complete("hé", **fields)["choices"][0]
    assert whole["text"] == "héab"
    assert whole["logprobs"]["tokens"] == ["h", "bytes:\\xc3", "bytes:\\xa9", "a", "b"]
    assert whole["logprobs"]["token_logprobs"] == [None, -2.0, -2.0, -0.5, -0.5]
    assert whole["logprobs"]["text_offset"] == [0, 1, 1, 2, 3]
    assert whole["logprobs"]["top_logprobs"][3] == {"a": -0.5, "bytes:\\xc8": -9999.0}
    chunks = [c for chunk in stream(server, TEXT, {"prompt": "hé", **fields}) for c in chunk["choices"]]
    assert "".join(c["text"] for c in chunks) == "héab"
    for name in whole["logprobs"]:
        assert [x for c in chunks if c["logprobs"] for x in c["logprobs"][name]] == whole["logprobs"][name]


def test_echo_with_no_tokens_scores_the_prompt(server):
    reply = server.complete("abc", echo=True, logprobs=0, max_tokens=0)
    assert reply["choices"][0]["text"] == "abc"
    assert len(reply["choices"][0]["logprobs"]["tokens"]) == 3
    assert reply["usage"]["completion_tokens"] == 0


def test_chat_logprobs_carry_bytes_and_alternatives(server):
    reply = server.chat(HELLO, max_tokens=1, logprobs=True, top_logprobs=2)
    (entry,) = reply["choices"][0]["logprobs"]["content"]
    assert entry["token"] == "a" and entry["bytes"] == [97] and entry["logprob"] == -0.5
    assert entry["top_logprobs"][1] == {"token": "�", "logprob": -9999.0, "bytes": [200]}


def test_render_tokenize_and_detokenize_agree(server):
    rendered = server.http.post(CHAT + "/render", json={"messages": HELLO}).json()
    tokens = server.http.post("/tokenize", json={"messages": HELLO}).json()
    assert rendered["token_ids"] == tokens["tokens"]
    assert tokens["count"] == len(tokens["tokens"]) and tokens["max_model_len"] == 4096
    assert server.http.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": rendered["text"]}
    assert rendered["offsets"][1] == [1, 2]


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path,prompt", [(CHAT, {"messages": HELLO}), (TEXT, {"prompt": "hi"})])
def test_a_failure_after_the_first_byte_is_an_event_and_before_it_a_status(server, engine, path, prompt):
    engine.script = Script(fail_after=3, interval=0.01)
    chunks = stream(server, path, {**prompt, "max_tokens": 9})
    assert chunks[-1]["error"]["code"] == "engine_error"
    engine.script = Script(fail_after=0)
    for streaming in (True, False):
        reply = server.http.post(path, json={**prompt, "stream": streaming})
        assert reply.status_code == 500
        assert reply.json()["error"]["message"] == "the step failed"


def test_a_full_queue_is_429_with_retry_after(server, engine):
    engine.script = Script(queue_full=True)
    for streaming in (True, False):
        reply = server.http.post(CHAT, json={"messages": HELLO, "stream": streaming})
        assert reply.status_code == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.json()["error"]["type"] == "rate_limit_error"


def test_more_prompts_than_the_queue_holds_is_400_not_429():
    with live_engine(StubEngine(), Settings(model="stub", max_waiting=2)) as small:
        reply = small.http.post(TEXT, json={"prompt": [[1], [2], [3]]})
        assert reply.status_code == 400 and reply.json()["error"]["param"] == "prompt"
        assert small.complete([[1], [2]], max_tokens=1)


def test_one_prompt_of_a_list_that_cannot_be_served_stops_all_before_any_runs(server, engine):
    engine.info = dataclasses.replace(engine.info, max_model_len=100, capacity=100)
    reply = server.http.post(TEXT, json={"prompt": [[1], [1] * 100], "max_tokens": 1})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    assert reply.json()["error"]["message"].startswith("prompt[1]")
    assert not engine.roots


# -- bodies -----------------------------------------------------------------------------------------------------------


def post_raw(server, content, **headers):
    return server.http.post(TEXT, content=content, headers={"content-type": "application/json", **headers})


def test_a_large_body_is_413_with_and_without_a_length(server):
    body = json.dumps({"prompt": "x" * 5000}).encode()
    assert post_raw(server, body).status_code == 413
    chunked = post_raw(server, iter([body[:100], body[100:]]))
    assert chunked.status_code == 413
    assert chunked.json()["error"]["code"] == "body_too_large"
    assert server.complete("ok", max_tokens=1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe\x00",
        b'{"prompt": "a"} trailing',
        b"[" * 2000,
        b'{"prompt": ' + b"[" * 1500 + b"]" * 1500 + b"}",
        b'{"prompt": "a", "x": ' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}",
        b'{"prompt": "a", "seed": ' + b"9" * 4000 + b"}",
        b'{"prompt": "a", "seed": ' + b"9" * 4000 + b"." + b"}",
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "a", "seed": NaN, "seed": 1}',
        b'{"prompt": "a", "temperature": -Infinity}',
        b'{"prompt": "a", "unknown": [{"deep": NaN}]}',
        b'{"prompt": "a", "cache_salt": "\\uDC00"}',
    ],
)
def test_odd_json_is_400_and_says_so(server, content):
    reply = post_raw(server, content)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["type"] == "invalid_request_error"
    assert "Error" not in reply.json()["error"]["message"]


def test_infinite_numbers_are_refused_by_the_name_of_their_field(server):
    reply = post_raw(server, b'{"prompt": "a", "top_p": NaN}')
    assert reply.json()["error"]["param"] == "top_p"
    nested = post_raw(server, b'{"prompt": "a", "metadata": [{"deep": Infinity}]}')
    assert nested.json()["error"]["message"].startswith("metadata[0].deep: got inf")


def test_half_a_surrogate_pair_is_served_as_a_replacement_character(server):
    reply = post_raw(server, b'{"prompt": "cut \\ud83d here", "echo": true, "max_tokens": 1, "stop": ["\\udc00"]}')
    assert reply.json()["choices"][0]["text"] == "cut � herea"
    assert post_raw(server, b'{"prompt": "a", "model": "\\ud83d"}').status_code == 404
    whole = post_raw(server, b'{"prompt": "\\ud83d\\ude00", "echo": true, "max_tokens": 1}')
    assert whole.json()["choices"][0]["text"] == "😀a"


def test_content_type_method_and_route(server):
    form = server.http.post(TEXT, data={"prompt": "x"})
    assert form.status_code == 415 and form.json()["error"]["param"] == "content-type"
    wrong = server.http.get(TEXT)
    assert wrong.status_code == 405 and wrong.headers["allow"] == "POST" and wrong.json()["error"]["message"]
    assert server.http.get("/v2/nothing").json()["error"]["code"] == "not_found"
    assert post_raw(server, b'{"prompt": "a", "max_tokens": 1}', **{"content-type": "application/json; charset=utf-8"}
                    ).status_code == 200  # fmt: skip


# -- keys -------------------------------------------------------------------------------------------------------------


def test_keys_guard_everything_but_health_and_version_and_separate_namespaces(engine):
    settings = Settings(model="stub", api_keys=("first", "sécond"))
    with live_engine(engine, settings) as server, httpx.Client(base_url=server.url) as bare:
        assert bare.get("/health").status_code == 200
        assert bare.get("/version").json()["version"]
        for path in ("/metrics", "/v1/models", "/v1/cache"):
            assert bare.get(path).status_code == 401
        for header in ("Bearer wrong", "Bearer", "first", "Basic first", "Bearer firstt", "Bearer \xe9"):
            reply = bare.post(CHAT, json={"messages": HELLO}, headers={"authorization": header.encode("latin-1")})
            assert reply.status_code == 401, header
            assert reply.json()["error"]["code"] == "invalid_api_key"
            assert reply.headers["www-authenticate"] == "Bearer"
        for key in ("first", "sécond"):
            for salt in ({}, {"cache_salt": None}, {"cache_salt": ""}, {"cache_salt": "α\u0000"}):
                headers = {"authorization": f"Bearer {key}".encode()}
                reply = bare.post(TEXT, json={"prompt": "a", "max_tokens": 1, **salt}, headers=headers)
                assert reply.status_code == 200
    first, second = engine.roots[:4], engine.roots[4:]
    assert first[0] == first[1] and len(set(first)) == 3
    assert not set(first) & set(second)


# -- clients that vanish, dawdle or say nothing ------------------------------------------------------------------------


def hang_up(connection, how):
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half":
        connection.shutdown(socket.SHUT_WR)
    else:
        connection.close()


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("begun", [True, False])
def test_a_client_that_hangs_up_is_aborted_at_once(server, engine, how, streaming, begun):
    engine.script = Script(interval=0.005 if begun else 30)
    connection = raw_request(server, TEXT, {"prompt": "abc", "max_tokens": 4000, "stream": streaming})
    wait_for(lambda: engine.running == 1 and (engine.emitted > 3 or not begun))
    if begun and streaming:
        assert connection.recv(100)
    hang_up(connection, how)
    wait_for(lambda: engine.running == 0)
    assert engine.aborted == 1
    emitted = engine.emitted
    time.sleep(0.03)
    assert engine.emitted == emitted
    connection.close()


def test_a_slow_reader_gets_everything_in_fewer_chunks_and_slows_nobody(server, engine):
    engine.info = dataclasses.replace(engine.info, max_model_len=60_000, capacity=60_000)
    engine.script = Script(interval=0)
    body = {"prompt": "abc", "max_tokens": 50_000, "stream": True, "return_token_ids": True}
    connection = raw_request(server, TEXT, body)
    wait_for(lambda: engine.running == 1)
    assert server.complete("quick", max_tokens=3)["choices"][0]["text"] == "abc"
    wait_for(lambda: engine.running == 0, 20)
    assert engine.emitted == 50_003
    received = bytearray()
    while not received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
        received += connection.recv(1 << 20)
    connection.close()
    chunks = [json.loads(line[6:]) for line in received.splitlines() if line.startswith(b"data: {")]
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert text == ("abcdefghijklmnopqrstuvwxyz" * 1924)[:50_000]
    assert len(chunks) < 45_000, len(chunks)
    assert max(len(chunk["choices"][0]["text"]) for chunk in chunks) > 1000


# -- the end ----------------------------------------------------------------------------------------------------------


def test_shutdown_ends_streams_politely_and_refuses_what_comes(engine):
    engine.script = Script(interval=0.01)
    seen = {}

    def read(name, url, streaming):
        with httpx.Client(base_url=url, timeout=30) as client:
            body = {"messages": HELLO, "max_tokens": 4000, "stream": streaming}
            with client.stream("POST", CHAT, json=body) as reply:
                seen[name] = (reply.status_code, events(reply) if streaming else json.loads(reply.read()))

    with live_engine(engine, Settings(model="stub")) as server:
        readers = [
            threading.Thread(target=read, args=(name, server.url, name == "stream")) for name in ("stream", "whole")
        ]
        for reader in readers:
            reader.start()
        wait_for(lambda: engine.running == 2 and engine.emitted > 6)
        began = time.monotonic()
    for reader in readers:
        reader.join()
    assert time.monotonic() - began < 5
    status, chunks = seen["stream"]
    assert status == 200 and len(chunks) > 2
    assert chunks[-1]["error"]["code"] == "shutting_down"
    status, body = seen["whole"]
    assert status == 503 and body["error"]["code"] == "shutting_down"


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_debug_routes_exist_only_with_test_hooks(server, engine):
    assert server.http.post("/debug/check").json() == {"ok": True, "broken": []}
    assert server.http.post("/debug/clock", json={"advance_s": 5}).status_code == 200
    assert server.http.post("/debug/fault", json={"site": "forward", "at": 1}).status_code == 200
    for wrong in ({"site": "nowhere", "at": 1}, {"site": "forward", "at": 0}, {"at": 1}):
        assert server.http.post("/debug/fault", json=wrong).status_code == 400
    with live_engine(StubEngine(), Settings(model="stub")) as plain:
        for path in ("/debug/check", "/debug/clock", "/debug/fault"):
            assert plain.http.post(path, json={}).status_code == 404


def test_openapi_resolves_and_describes_the_bodies(server):
    description = server.http.get("/openapi.json").json()
    schemas = description["components"]["schemas"]
    assert "temperature" in schemas["ChatBody"]["properties"]
    references = [part.split('"')[0] for part in json.dumps(description).split("#/components/schemas/")[1:]]
    assert references and set(references) <= schemas.keys()


def test_models_name_their_limits(server):
    (card,) = server.http.get("/v1/models").json()["data"]
    assert card["id"] == "stub" and card["max_model_len"] == 4096 and card["page_size"] == 16
    assert server.http.get("/v1/models/stub").json() == card
    assert server.http.get("/v1/models/other").status_code == 404
