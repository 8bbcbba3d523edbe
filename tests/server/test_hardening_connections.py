"""Clients that are slow, silent, greedy or wrong below the level of a body: each gets JSON or an end, and harms nobody."""

from __future__ import annotations

import dataclasses
import json
import resource
import select
import socket
import struct
import threading
import time
from contextlib import ExitStack, closing
from http import HTTPStatus

import pytest
from live import live_engine
from stub_engine import Script, StubEngine

from agentcache.server.gate.connections import allow_files
from agentcache.settings import Settings

TEXT = "/v1/completions"
HELLO = b'{"prompt": "a", "max_tokens": 2}'
SLOW = {"head_timeout_s": 0.2, "body_timeout_s": 0.3, "send_timeout_s": 0.5}


@pytest.fixture(scope="module")
def engine():
    return StubEngine()


@pytest.fixture(scope="module")
def server(engine):
    """With short deadlines, and room for a few clients."""
    with live_engine(engine, Settings(model="stub", max_connections=8, **SLOW)) as running:
        yield running


@pytest.fixture(scope="module")
def patient():
    """With long deadlines, for what must not wait for one."""
    with live_engine(StubEngine(), Settings(model="stub")) as running:
        yield running


def connect(server, buffer=None):
    connection = socket.socket()
    if buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", server.port))
    return closing(connection)


def head(path=TEXT, method="POST", version="1.1", **fields):
    lines = [
        f"{method} {path} HTTP/{version}",
        "host: localhost",
        *(f"{k.replace('_', '-')}: {v}" for k, v in fields.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def post(body=HELLO, **fields):
    return head(content_type="application/json", content_length=len(body), **fields) + body


def read_all(connection):
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    return received


def read_one(connection):
    """(status, headers, body) of one answer with a content-length; nothing behind it is read."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1)
    status, headers = parse_head(received)
    body = b""
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(int(headers["content-length"]) - len(body))
    return status, headers, body


def parse_head(received):
    lines = received.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    return int(lines[0].split()[1]), dict(line.lower().split(": ", 1) for line in lines[1:])


def refused(server, data, status, code=None):
    """``data`` is answered with one JSON error, and the end of the connection; others are served meanwhile."""
    with connect(server) as connection:
        connection.sendall(data)
        received = read_all(connection)
    got, headers = parse_head(received)
    assert got == status, received[:300]
    assert received.startswith(f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode())
    assert headers["content-type"] == "application/json" and headers["connection"] == "close"
    assert headers["x-request-id"]
    error = json.loads(received.partition(b"\r\n\r\n")[2])["error"]
    assert error.keys() == {"message", "type", "param", "code"} and error["message"]
    assert code is None or error["code"] == code
    for leaked in ("Error", "bytearray", "Traceback", "h11"):
        assert leaked not in error["message"]
    assert server.http.get("/health").status_code == 200
    return error


# -- slow and silent ---------------------------------------------------------------------------------------------------


def drip(connection, data, pause, stop):
    """One byte after another."""
    for byte in data:
        if stop.is_set():
            return
        try:
            connection.sendall(bytes([byte]))
        except OSError:
            return
        time.sleep(pause)


@pytest.mark.parametrize(
    ("begin", "rest"),
    [
        (b"", head(x_long="x" * 200)),
        (head(content_type="application/json", content_length=4000), b"x" * 4000),
        (head(content_type="application/json", transfer_encoding="chunked"), b"1\r\nx\r\n" * 400),
    ],
    ids=["head", "body", "chunks"],
)
def test_bytes_that_drip_are_408(server, begin, rest):
    with connect(server) as connection:
        connection.sendall(begin)
        stop = threading.Event()
        dripping = threading.Thread(target=drip, args=(connection, rest, 0.01, stop))
        dripping.start()
        received = read_all(connection)
        stop.set()
        dripping.join()
    status, headers = parse_head(received)
    error = json.loads(received.partition(b"\r\n\r\n")[2])["error"]
    assert (status, error["code"], headers["connection"]) == (408, "too_slow", "close")
    assert "0.3 seconds" in error["message"] if begin else "0.2 seconds" in error["message"]


@pytest.mark.parametrize("rest", [b"", b"zz\r\n"], ids=["slow", "broken"])
def test_a_body_that_fails_is_told_in_the_envelope_of_its_route(server, rest):
    framing = {"content_length": 9} if not rest else {"transfer_encoding": "chunked"}
    told = {}
    for path in ("/v1/messages", "/v1/responses"):
        with connect(server) as connection:
            connection.sendall(head(path, content_type="application/json", **framing) + rest)
            received = read_all(connection)
        _, headers = parse_head(received)
        told[path] = json.loads(received.partition(b"\r\n\r\n")[2])
        assert path != "/v1/messages" or told[path]["request_id"] == headers["request-id"]
    theirs, ours = told["/v1/messages"], told["/v1/responses"]["error"]
    assert theirs["type"] == "error" and theirs["error"]["details"] == {"error_code": ours["code"]}
    assert theirs["error"]["message"] == ours["message"]


def test_a_client_that_says_nothing_is_hung_up_on(server):
    with connect(server) as connection:
        assert connection.recv(100) == b""


def test_the_deadline_of_a_head_begins_anew_with_each_request(server):
    with connect(server) as connection:
        for _ in range(3):
            connection.sendall(post())
            assert read_one(connection)[0] == 200
            time.sleep(0.12)
        connection.sendall(b"POST ")
        assert read_one(connection)[0] == 408


def test_a_body_that_nobody_reads_has_the_same_deadline(server):
    with connect(server) as connection:
        connection.sendall(head("/nowhere", content_length=100))
        assert read_one(connection)[0] == 404
        assert connection.recv(100) == b""


def test_a_large_body_gets_the_time_that_it_takes(server):
    body = json.dumps({"prompt": "a", "max_tokens": 2, "pad": "x" * 60_000}).encode()
    with connect(server) as connection:
        connection.sendall(head(content_type="application/json", content_length=len(body)))
        for start in range(0, len(body), 10_000):
            connection.sendall(body[start : start + 10_000])
            time.sleep(0.1)
        assert read_one(connection)[0] == 200


def test_a_client_that_takes_nothing_is_cut(server):
    body = {"messages": [{"role": "user", "content": "x" * 600_000}]}  # some 12 MB of offsets
    with connect(server) as connection:
        connection.sendall(post(json.dumps(body).encode(), path="/v1/chat/completions/render"))
        connection.recv(1, socket.MSG_PEEK)  # the answer has begun
        state = select.poll()
        state.register(connection, 0)  # errors and the other side's end are told in any case
        assert state.poll(30_000), "the server waits for ever"
        with pytest.raises(ConnectionResetError):
            read_all(connection)


def test_a_stream_that_nobody_takes_ends_its_request(server, engine):
    engine.info = dataclasses.replace(engine.info, max_model_len=10**7, capacity=10**7)
    body = {"prompt": "a", "max_tokens": 10**6, "logprobs": 5, "stream": True}
    with connect(server, buffer=65536) as connection:
        connection.sendall(post(json.dumps(body).encode()))
        wait_for(lambda: engine.running)
        wait_for(lambda: not engine.running, 20)
        assert engine.emitted < 10**6


def test_clients_that_take_nothing_do_not_hold_up_the_end_nor_fill_the_log(monkeypatch, caplog):
    monkeypatch.setattr("agentcache.server.serve.GRACE_S", 0.3)
    engine = StubEngine()
    engine.info = dataclasses.replace(engine.info, max_model_len=10**7, capacity=10**7)
    stream = post(json.dumps({"prompt": "a", "max_tokens": 10**6, "logprobs": 5, "stream": True}).encode())
    with ExitStack() as connected:
        with live_engine(engine, Settings(model="stub")) as server:
            for _ in range(2):
                connected.enter_context(connect(server, buffer=65536)).sendall(stream)
            wait_for(lambda: engine.running == 2)
            time.sleep(1)  # both are stuck
        assert not engine.running
    assert not caplog.records


# -- malformed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32) + b"\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost : a\r\n\r\n", 400),
        (b"GET /\xc3\xa9 HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nbroken\n\n", 400),
        (b"\r\n\r\n\r\n", 400),
        (head(content_length="5, 6"), 400),
        (head(content_length="-1"), 400),
        (head(content_length="1e3"), 400),
        (head(transfer_encoding="gzip"), 501),
        (head(transfer_encoding="chunked", content_length=3) + b"0\r\n\r\n", 400),
        (head(transfer_encoding="chunked, chunked") + b"0\r\n\r\n", 501),
        (head(content_type="application/json", transfer_encoding="chunked") + b"zz\r\nabc\r\n", 400),
        (head(content_type="application/json", transfer_encoding="chunked") + b"3\r\nabcd\r\n", 400),
    ],
)
def test_what_is_not_http_is_refused_in_json(patient, caplog, data, status):
    error = refused(patient, data, status)
    assert error["type"] == "invalid_request_error"
    assert not caplog.records


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 414, "address_too_long"),
        (b"GET /" + b"a" * 1_000_000, 414, "address_too_long"),
        (head(x_long="x" * 100_000), 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 40_000, 431, "headers_too_large"),
        (
            head(content_type="application/json", transfer_encoding="chunked") + b"1" + b";x" * 100_000,
            400,
            "invalid_http",
        ),
    ],
    ids=["line", "endless line", "header", "many headers", "chunk"],
)
def test_long_heads_are_refused_in_json(patient, data, status, code):
    refused(patient, data, status, code)


# -- odd, and served ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (post(connection="close"), 200),
        (head(version="1.0", content_type="application/json", content_length=len(HELLO)) + HELLO, 200),
        (post(upgrade="h2c", connection="close, upgrade"), 200),
        (post(connection="close") + b"\r\n", 200),
        (head("/health", "GET", content_length=3, connection="close") + b"abc", 200),
        (head("/health", "HEAD", connection="close"), 405),
        (head("*", "OPTIONS", connection="close"), 404),
        (head("localhost:80", "CONNECT", connection="close"), 404),
        (head("http://localhost/v1/models", "GET", connection="close"), 404),
        (head("/v1/models/%00%ff%F0", "GET", connection="close"), 404),
        (head("/v1/sessions/" + "a" * 50_000, "GET", connection="close"), 404),
        (head("/..%2f..%2fetc/passwd", "GET", connection="close"), 404),
    ],
)  # fmt: skip
def test_odd_requests_get_an_ordinary_answer(patient, caplog, data, status):
    with connect(patient) as connection:
        connection.sendall(data)
        received = read_all(connection)
    got, headers = parse_head(received)
    assert got == status and headers["content-type"] == "application/json"
    assert len(received) < 3000 and not caplog.records


@pytest.mark.parametrize("trailer", [b"", b"x-checksum: 1\r\n"])
def test_a_body_in_chunks_is_read_with_or_without_trailers(patient, trailer):
    sizes = (HELLO[:1], HELLO[1:9], HELLO[9:])
    chunks = b"".join(b"%x;note=1\r\n%s\r\n" % (len(part), part) for part in sizes)
    with connect(patient) as connection:
        for _ in range(2):
            connection.sendall(
                head(content_type="application/json", transfer_encoding="chunked")
                + chunks
                + b"0\r\n"
                + trailer
                + b"\r\n"
            )
            assert read_one(connection)[0] == 200


def test_a_client_that_expects_100_continue_is_told_to_go_on_or_why_not(patient):
    with connect(patient) as connection:
        connection.sendall(head(content_type="application/json", content_length=len(HELLO), expect="100-continue"))
        assert read_one(connection)[0] == 100
        connection.sendall(HELLO)
        assert read_one(connection)[0] == 200
        connection.sendall(head(content_type="application/json", content_length=2**40, expect="100-continue"))
        assert read_one(connection)[0] == 413


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/health", "/metrics", "/v1/sessions/x/fork"])
def test_another_method_is_405_and_says_which_one(patient, path):
    for method in ("DELETE", "OPTIONS", "HEAD", "TRACE", "BREW"):
        if path == "/health" and method == "BREW":
            continue
        reply = patient.http.request(method, path)
        assert reply.status_code == 405 and reply.headers["allow"], (method, reply.text)
        assert method == "HEAD" or reply.json()["error"]["code"] == "method_not_allowed"


def test_a_failure_of_the_server_is_500_and_the_connection_goes_on(server, engine, caplog, monkeypatch):
    def fail():
        raise RuntimeError("secret")

    with connect(server) as connection:
        monkeypatch.setattr(engine, "stats", fail)
        connection.sendall(head("/v1/cache", "GET"))
        status, headers, body = read_one(connection)
        assert status == 500 and headers["content-type"] == "application/json"
        assert json.loads(body)["error"]["code"] == "internal_server_error" and b"secret" not in body
        wait_for(lambda: [record.exc_info[1].args for record in caplog.records] == [("secret",)])
        monkeypatch.undo()
        connection.sendall(head("/v1/cache", "GET"))
        assert read_one(connection)[0] == 200


# -- pipelines and hang-ups --------------------------------------------------------------------------------------------


def wait_for(condition, seconds=2.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.005)


@pytest.mark.parametrize("behind", [100, 60_000, 300_000, 3_000_000])
@pytest.mark.parametrize("reset", [False, True])
def test_a_hang_up_behind_pipelined_requests_is_noticed(server, engine, behind, reset):
    engine.script = Script(interval=30)
    with connect(server) as connection:
        connection.sendall(post())
        wait_for(lambda: engine.running == 1)
        more = post()
        connection.sendall((more * (behind // len(more) + 1))[:behind])
        time.sleep(0.05)
        assert engine.running == 1
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(lambda: engine.running == 0)
    engine.script = Script()


def test_pipelined_requests_are_answered_in_order_and_a_flood_of_them_is_ended(server, engine):
    engine.script = Script(interval=0.001)
    with connect(server) as connection:
        connection.sendall(post() * 20)
        assert [read_one(connection)[0] for _ in range(20)] == [200] * 20
    with connect(server) as connection:
        connection.sendall(post() * 3000)
        answers = read_all(connection).count(b"HTTP/1.1 200")
        assert 1 <= answers < 3000
    engine.script = Script()


# -- crowds ------------------------------------------------------------------------------------------------------------


def test_a_client_too_many_is_503_and_the_others_are_served(engine):
    with live_engine(StubEngine(), Settings(model="stub", max_connections=4)) as crowded:
        crowded.http.get("/health")  # takes a place, and keeps it
        held = [connect(crowded).thing for _ in range(3)]
        time.sleep(0.05)
        error = refused(crowded, post(), 503, "too_many_connections")
        assert "--max-connections" in error["message"] and error["type"] == "service_unavailable_error"
        held.pop().close()
        time.sleep(0.05)
        with connect(crowded) as connection:
            connection.sendall(post())
            assert read_one(connection)[0] == 200
        for connection in held:
            connection.close()


def test_many_silent_clients_are_gone_after_the_deadline(server):
    held = [connect(server).thing for _ in range(100)]
    wait_for(lambda: server.http.get("/health").status_code == 200, 5)
    for connection in held:
        assert connection.recv(1) == b""
        connection.close()


def test_as_many_files_may_be_open_as_connections_need():
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        allow_files(400)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 400
        allow_files(10)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 400  # never less than there was
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
