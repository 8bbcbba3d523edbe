"""One line for each request, with what it cost and how it ended, and nothing that it said."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from live import live_engine, stream
from stub_engine import StubEngine

from agentcache.server.watch.access_log import LineWriter, access_logger
from agentcache.settings import Settings

KEY = "sk-that-nobody-may-see"
PROMPT = "words that nobody may see"


@pytest.fixture(scope="module")
def stub():
    settings = Settings(model="stub", api_keys=(KEY,), access_log="json")
    with live_engine(StubEngine(), settings) as running:
        yield running


@pytest.fixture
def lines(caplog):
    """What was logged so far; waits for as many lines as are asked for, since a line follows the end of its answer."""
    caplog.set_level(logging.INFO, logger=access_logger.name)

    def read(count: int) -> list[str]:
        deadline = time.monotonic() + 10
        while True:
            found = [record.getMessage() for record in caplog.records if record.name == access_logger.name]
            if len(found) >= count or time.monotonic() > deadline:
                assert len(found) == count, found
                return found
            time.sleep(0.005)

    return read


SLOW = (
    b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
)


@pytest.mark.parametrize(
    ("data", "method", "path", "status"),
    [
        (b"no HTTP\r\n\r\n", "other", "-", 400),
        (b"GET / HTTP/1.1\r\nx: ", "other", "-", 408),
        (b"GET /" + b"x" * 70_000, "other", "-", 414),
        (SLOW, "POST", "/v1/completions", 408),
    ],
)
def test_a_connection_that_is_refused_is_a_line_with_the_status_and_the_id_that_were_told(
    lines, data, method, path, status
):
    settings = Settings(model="stub", access_log="json", head_timeout_s=0.2, body_timeout_s=0.2)
    with live_engine(StubEngine(), settings) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.sendall(data)
            told = client.makefile("rb").read()
        line = one(lines)
        figures = server.http.get("/metrics").text
    assert (line["method"], line["path"], line["status"]) == (method, path, status)
    assert line["client"] == "127.0.0.1" and line["bytes"] == len(told.partition(b"\r\n\r\n")[2])
    assert f"HTTP/1.1 {status} ".encode() in told and f"x-request-id: {line['id']}\r\n".encode() in told
    route = "/v1/completions" if method == "POST" else "unknown"
    assert f'agentcache_http_requests_total{{method="{method}",route="{route}",status="{status}"}} 1.0' in figures


def test_a_client_too_many_is_a_line(lines):
    with live_engine(StubEngine(), Settings(model="stub", access_log="text", max_connections=1)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as first:
            first.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert first.recv(9) == b"HTTP/1.1 "
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as second:
                second.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert second.makefile("rb").read().startswith(b"HTTP/1.1 503 ")
        assert " other - 503 " in lines(1)[0]


@pytest.mark.parametrize("style", ["text", "json"])
def test_health_and_metrics_are_lines_only_where_they_fail(lines, style):
    settings = Settings(model="stub", access_log=style, api_keys=(KEY,), admin_keys=("sk-admin",))
    with live_engine(StubEngine(), settings) as server:
        for _ in range(3):
            assert server.http.get("/health").status_code == 200
            assert server.http.get("/metrics", headers={"authorization": "Bearer sk-admin"}).status_code == 200
        assert server.http.put("/health").status_code == 405
        assert server.http.get("/metrics", headers={"authorization": "Bearer no"}).status_code == 401
        assert server.http.get("/health/of/it").status_code == 404
        told = lines(3)
        figures = server.http.get("/metrics", headers={"authorization": "Bearer sk-admin"}).text
    assert ["/health" in told[0], "/metrics" in told[1], "/health/of/it" in told[2]] == [True] * 3
    assert [status in line for status, line in zip(("405", "401", "404"), told, strict=True)] == [True] * 3
    assert 'agentcache_http_requests_total{method="GET",route="/health",status="200"} 3.0' in figures


def one(lines: Any) -> dict[str, Any]:
    return json.loads(lines(1)[0])


def test_a_request_is_a_line(stub, lines):
    reply = stub.http.get("/v1/models?api_key=abc", headers={"x-request-id": "r-1"})
    line = one(lines)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert 0 <= line.pop("seconds") < 60
    assert line == {
        "method": "GET", "path": "/v1/models", "status": 200, "bytes": len(reply.content), "id": "r-1",
        "client": "127.0.0.1",
    }  # fmt: skip


def test_one_that_generates_says_what_it_cost(stub, lines):
    reply = stub.complete(PROMPT, max_tokens=5, n=2)
    line = one(lines)
    usage, cache = reply["usage"], reply["agentcache"]
    assert line["prompt_tokens"] == usage["prompt_tokens"] == len(PROMPT)
    assert line["completion_tokens"] == usage["completion_tokens"] == 10
    assert line["cached_tokens"] == cache["cached_tokens"]
    assert line["computed_tokens"] == cache["computed_tokens"]
    assert 0 <= line["first_token_s"] <= line["seconds"]
    assert line["finish"] == "length"
    assert line["miss"] is None and line["error"] is None and line["session"] is None


def test_the_first_token_is_when_it_came_not_when_the_answer_did(stub, lines, monkeypatch):
    monkeypatch.setattr(stub.engine.script, "interval", 0.02)
    stub.complete(PROMPT, max_tokens=10)
    line = one(lines)
    assert 0.02 <= line["first_token_s"] <= line["seconds"] - 9 * 0.02


def test_a_stream_is_one_line_with_all_its_bytes(stub, lines):
    body = {"prompt": PROMPT, "max_tokens": 4, "stream": True}
    with stub.http.stream("POST", "/v1/completions", json=body) as reply:
        size = len(reply.read())
    line = one(lines)
    assert (line["status"], line["bytes"], line["completion_tokens"]) == (200, size, 4)


def test_a_turn_names_its_session(stub, lines):
    made = stub.http.post("/v1/sessions", json={"prompt": "once"}).json()
    stub.complete(" upon", session=made["id"], max_tokens=1)
    assert json.loads(lines(2)[1])["session"] == made["id"]


def test_a_stream_that_fails_after_its_first_byte_says_with_what(stub, lines, monkeypatch):
    monkeypatch.setattr(stub.engine.script, "fail_after", 2)
    events = stream(stub, "/v1/completions", {"prompt": PROMPT, "max_tokens": 9})
    line = one(lines)
    assert line["status"] == 200
    assert line["error"] == events[-1]["error"]["code"] == "engine_error"


def test_one_that_is_refused_says_with_what(stub, lines, monkeypatch):
    monkeypatch.setattr(stub.engine.script, "queue_full", True)
    assert stub.http.post("/v1/completions", json={"prompt": PROMPT}).status_code == 429
    line = one(lines)
    assert (line["status"], line["error"]) == (429, "queue_full")


def test_a_client_that_hangs_up_is_a_line_with_499(stub, lines, monkeypatch):
    monkeypatch.setattr(stub.engine.script, "interval", 0.01)
    body = {"prompt": PROMPT, "max_tokens": 4000, "stream": True}
    with stub.http.stream("POST", "/v1/completions", json=body) as reply:
        next(reply.iter_lines())
    line = one(lines)
    assert line["status"] == 499
    assert line["prompt_tokens"] == len(PROMPT)
    # What it cost is told by its end, which never came; a 0 would be wrong.
    assert line["cached_tokens"] is line["computed_tokens"] is line["completion_tokens"] is None


def test_a_path_cannot_forge_a_line(stub, lines):
    with socket.create_connection(("127.0.0.1", stub.port), timeout=10) as connection:
        path = '/x%0a2026-01-01T00:00:00.000Z%20GET%20/admin%20200%1b[31m%e2%80%a8%22"'
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n".encode())
        assert connection.recv(64).startswith(b"HTTP/1.1 404")
    text = lines(1)[0]
    assert len(text.splitlines()) == 1
    logged = json.loads(text)["path"]
    assert logged.isprintable() and logged.isascii() and not set(logged) & set(' "[')
    assert logged.startswith("/x%0A2026")


def test_a_long_path_is_cut(stub, lines):
    stub.http.get("/" + "x" * 5000)
    assert len(one(lines)["path"]) < 600


def test_nothing_that_was_said_and_no_key_is_logged(stub, lines):
    stub.complete(PROMPT, max_tokens=3, stop=["zebra"])
    stub.chat([{"role": "user", "content": PROMPT}], max_tokens=30)
    stub.http.get("/v1/models", headers={"authorization": "Bearer sk-wrong"}, params={"key": KEY})
    # An id is drawn from hexadecimal digits, which may spell one of these by chance.
    text = re.sub(r'"id": "req_[0-9a-f]+"', "", "\n".join(lines(3)))
    assert text.count("req_") == 0 and text.count('"path"') == 3
    for secret in (KEY, "sk-wrong", PROMPT, "nobody", "zebra", "abc"):
        assert secret not in text


def test_text_has_the_same_in_words(caplog):
    caplog.set_level(logging.INFO, logger=access_logger.name)
    with live_engine(StubEngine(), Settings(model="stub")) as running:
        running.http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 2}, headers={"x-request-id": "r-2"})
    (line,) = [record.getMessage() for record in caplog.records if record.name == access_logger.name]
    assert re.fullmatch(
        rf"\S+Z POST /v1/completions 200 [\d.]+s \d+B id=r-2 client=127\.0\.0\.1 prompt_tokens={len(PROMPT)} "
        rf"cached_tokens=0 computed_tokens={len(PROMPT) + 1} completion_tokens=2 first_token_s=[\d.]+ finish=length",
        line,
    ), line


def test_it_can_be_off(caplog):
    caplog.set_level(logging.INFO, logger=access_logger.name)
    with live_engine(StubEngine(), Settings(model="stub", access_log="off")) as running:
        running.http.get("/health")
    assert not [record for record in caplog.records if record.name == access_logger.name]


def entry(text: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "", 0, "%s", (text,), None)


def test_lines_are_written_in_order():
    reading, writing = os.pipe()
    handler = LineWriter(writing)
    for number in range(500):
        handler.emit(entry(f"line {number}"))
    handler.close()
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        assert pipe.read().splitlines() == [f"line {number}" for number in range(500)]


def test_a_pipe_that_nobody_empties_holds_nobody_up():
    """As with a script that starts a server and never reads its errors: more lines than pipe and queue hold."""
    reading, writing = os.pipe()
    handler = LineWriter(writing)
    for _ in range(20_000):
        handler.emit(entry("x" * 100))
    handler.close()
    os.close(reading)


SERVER = """
from agentcache.server.app import run_server
from agentcache.settings import Settings
from stub_engine import StubEngine
import sys
run_server(StubEngine(), Settings(model="stub", port=0, otel=sys.argv[1]))
"""


def test_a_served_process_logs_on_stderr_and_ends_in_time_while_its_collector_hangs():
    with socket.create_server(("127.0.0.1", 0)) as collector:  # takes connections and never says a word
        url = f"http://127.0.0.1:{collector.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, url], cwd=Path(__file__).parent,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            printed = ""
            while "Ctrl-C" not in printed:
                printed += (read := process.stdout.readline())
                assert read, process.communicate()
            address = re.findall(r"http://127\.0\.0\.1:\d+", printed)[-1]
            httpx.post(address + "/v1/completions", json={"prompt": PROMPT, "max_tokens": 2}).raise_for_status()
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=10)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0
    access = [line for line in errors.splitlines() if " POST /v1/completions 200 " in line]
    assert len(access) == 1
    assert "Traceback" not in errors
    assert "traces were not taken" in errors
