"""Bodies that no honest client sends, and prompts that are merely huge: each is refused in few words, and harms nobody."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import threading
import time

import pytest
from live import live_engine
from stub_engine import StubEngine

from agentcache.chat.tokenizer import Tokenizer
from agentcache.server.writer import event
from agentcache.settings import Settings

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = [{"role": "user", "content": "hi"}]
RAW_SURROGATE = b"\xed\xa0\x80"


@pytest.fixture(scope="module")
def stub():
    with live_engine(StubEngine(), Settings(model="stub")) as running:
        yield running


def post_raw(server, content, path=TEXT, **headers):
    return server.http.post(path, content=content, headers={"content-type": "application/json", **headers})


@pytest.mark.parametrize("field", ["prompt", "model", "stop", "cache_salt"])
def test_only_utf_8_is_json(stub, field):
    fields = {"prompt": "a", field: "X"}
    with_surrogate = json.dumps(fields).encode().replace(b'"X"', b'"' + RAW_SURROGATE + b'"')
    for content in (with_surrogate, json.dumps(fields).encode("utf-16"), json.dumps(fields).encode("utf-32-le")):
        reply = post_raw(stub, content)
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["code"] == "invalid_json"


def test_a_byte_order_mark_is_no_part_of_the_json(stub):
    assert post_raw(stub, b'\xef\xbb\xbf{"prompt": "a", "max_tokens": 1}').status_code == 200


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"messages": [{"role": "x" * 100_000, "content": "a"}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "x" * 100_000}]}]}),
        (TEXT, {"prompt": "a", "logit_bias": {"x" * 100_000: "y"}}),
        (TEXT, {"prompt": "a", "model": "x" * 100_000}),
        (TEXT, {"prompt": "a", "x" * 100_000: float("inf")}),
    ],
    ids=["role", "part", "bias", "model", "key"],
)
def test_an_error_does_not_repeat_all_that_was_sent(server, path, fields):
    reply = post_raw(server, json.dumps(fields).encode(), path)
    assert 400 <= reply.status_code < 500
    assert len(reply.content) < 3000


def test_a_compressed_body_is_415(stub):
    packed = gzip.compress(b'{"prompt": "a", "max_tokens": 1}')
    refused = post_raw(stub, packed, **{"content-encoding": "gzip"})
    assert refused.status_code == 415 and refused.json()["error"]["param"] == "content-encoding"
    plain = post_raw(stub, b'{"prompt": "a", "max_tokens": 1}', **{"content-encoding": "identity"})
    assert plain.status_code == 200


def test_a_body_of_very_many_parts_is_400_and_one_of_very_much_code_is_not(stub):
    for content in (
        b'{"prompt": [' + b"[]," * 1_000_000 + b"[]]}",
        b'{"x": [' + b'"ab",' * 600_000 + b'""], "prompt": "a"}',
    ):
        reply = post_raw(stub, content)
        assert reply.status_code == 400 and "500,000" in reply.json()["error"]["message"]
    code = 'if (a[0] == "\\"") { x: {} }\n' * 100_000
    assert post_raw(stub, json.dumps({"prompt": "a", "max_tokens": 1, "code": code}).encode()).status_code == 200


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_hangs_up_in_its_body_is_no_failure_of_the_server(stub, caplog, reset):
    connection = socket.create_connection(("127.0.0.1", stub.port))
    connection.sendall(f"POST {TEXT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{".encode())
    time.sleep(0.05)
    if reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    time.sleep(0.1)
    assert stub.http.get("/health").status_code == 200
    assert not caplog.records


@pytest.mark.parametrize("streaming", [False, True])
def test_too_long_a_conversation_is_an_error_of_messages_and_too_long_a_prompt_one_of_prompt(server, streaming):
    for path, field, body in (
        (CHAT, "messages", {"messages": [{"role": "user", "content": "the cache " * 2000}]}),
        (TEXT, "prompt", {"prompt": "the cache " * 2000}),
    ):
        error = server.http.post(path, json={**body, "stream": streaming}).json()["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", field)


def test_an_event_is_one_line_wherever_a_client_sees_ends_of_lines():
    text = "a\x85b\u2028c\u2029d\r\ne"
    sent = event({"text": text}).decode()
    assert len(sent.splitlines()) == 2  # the data, and the empty line that ends an event
    assert json.loads(sent.removeprefix("data: ")) == {"text": text}


@pytest.mark.parametrize("parse_special", [True, False])
def test_a_long_text_is_tokenised_beside_other_threads(tiny, parse_special):
    tokenizer = Tokenizer.from_folder(tiny.folder)
    tokenizer.encode("builds what is built once", parse_special=parse_special)
    text = "the cache keeps pages " * 40_000
    ticks = []
    worker = threading.Thread(target=tokenizer.encode, args=(text,), kwargs={"parse_special": parse_special})
    worker.start()
    while worker.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.005)
    assert len(ticks) > 10, "every other thread stood still"
