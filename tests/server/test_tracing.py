"""Traces as a collector gets them: a real OTLP receiver, whose messages are decoded and looked into."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from live import live_engine, live_server, stream
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from stub_engine import StubEngine

from agentcache.errors import SettingsError
from agentcache.server.watch import tracing
from agentcache.server.watch.exchanges import Exchange
from agentcache.server.watch.journal import RequestRecord
from agentcache.settings import Settings, load_settings

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
PROMPT = random.Random(1).choices(range(400), k=70)


@dataclass
class Span:
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    raw: bytes = b""


@dataclass
class Collector:
    url: str
    status: int = 200
    """What it answers."""
    spans: list[Span] = field(default_factory=list)
    posts: list[str] = field(default_factory=list)
    """Paths that were posted to."""

    def roots(self) -> list[Span]:
        return [span for span in self.spans if span.kind == 2]  # SERVER

    def of(self, request_id: str) -> Span:
        (span,) = (span for span in self.roots() if span.attributes["agentcache.request_id"] == request_id)
        return span

    def take(self, path: str, body: bytes) -> None:
        self.posts.append(path)
        if self.status != 200:
            return
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {item.key: _value(item.value) for item in resource.resource.attributes}
            self.spans += [_span(span, about) for scope in resource.scope_spans for span in scope.spans]


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def _span(span: Any, resource: dict[str, Any]) -> Span:
    return Span(
        span.name, span.kind, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
        span.start_time_unix_nano, span.end_time_unix_nano, span.status.code == 2,
        {item.key: _value(item.value) for item in span.attributes}, resource, span.SerializeToString(),
    )  # fmt: skip


@contextmanager
def collector() -> Iterator[Collector]:
    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.take(self.path, body)
            self.send_response(found.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        found = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


@dataclass
class Traffic:
    collector: Collector
    answers: dict[str, Any]
    """By request id."""
    began: float
    ended: float
    port: int


@pytest.fixture(scope="module")
def traffic(tiny) -> Traffic:
    """Requests of all kinds to a server that is then stopped, which sends the last of its spans."""
    answers: dict[str, Any] = {}
    began = time.time()
    with collector() as found:
        with live_server(tiny.folder, num_pages=64, otel=found.url) as server:
            asked = {
                "max_tokens": 4, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": 11, "stop": ["zebra"],
                "frequency_penalty": 0.25, "presence_penalty": 0.5, "n": 2,
            }  # fmt: skip
            body = {"messages": [{"role": "user", "content": "a secret question"}], **asked}
            headers = {"x-request-id": "chat", **PARENT}
            answers["chat"] = server.http.post("/v1/chat/completions", json=body, headers=headers).json()
            for name in ("cold", "warm"):
                body = {"prompt": PROMPT, "max_tokens": 3, "temperature": 0}
                server.http.headers["x-request-id"] = name
                answers[name] = server.http.post("/v1/completions", json=body).json()
            server.http.headers["x-request-id"] = "streamed"
            answers["streamed"] = stream(server, "/v1/completions", body)[-1]
            server.http.headers["x-request-id"] = "made"
            session = server.http.post("/v1/sessions", json={"prompt": "once"}).json()["id"]
            server.http.headers["x-request-id"] = "turn"
            answers["turn"] = server.complete(" upon", session=session, max_tokens=2)
            server.http.headers["x-request-id"] = "too-long"
            answers["too-long"] = server.http.post("/v1/completions", json={"prompt": PROMPT * 20}).json()
            server.http.post("/debug/fault", json={"site": "forward", "at": 3}).raise_for_status()
            server.http.headers["x-request-id"] = "broken"
            answers["broken"] = stream(server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 9})[-1]
            server.http.headers["x-request-id"] = "gone"
            body = {"prompt": PROMPT, "max_tokens": 900, "stream": True}
            with server.http.stream("POST", "/v1/completions", json=body) as reply:
                next(reply.iter_lines())
            server.http.headers["x-request-id"] = "health"
            server.http.get("/health")
            port = server.port
        return Traffic(found, answers, began, time.time(), port)


def test_each_request_that_generates_is_a_span_and_no_other(traffic):
    found = traffic.collector
    assert set(found.posts) == {"/v1/traces"}
    names = sorted(span.attributes["agentcache.request_id"] for span in found.roots())
    assert names == sorted(["chat", "cold", "warm", "streamed", "turn", "too-long", "broken", "gone"])
    for span in found.roots():
        assert span.resource["service.name"] == "agentcache"
        assert traffic.began * 1e9 <= span.start <= span.end <= traffic.ended * 1e9


def test_it_continues_the_callers_trace(traffic):
    span = traffic.collector.of("chat")
    assert (span.trace, span.parent) == (TRACE, CALLER)
    other = traffic.collector.of("cold")
    assert other.trace != TRACE and other.parent == ""


def test_it_follows_the_conventions_for_models(traffic):
    answer, span = traffic.answers["chat"], traffic.collector.of("chat")
    model = answer["model"]
    assert span.name == f"chat {model}"
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "agentcache",
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.response.id": answer["id"],
        "gen_ai.response.finish_reasons": ["length", "length"],
        "gen_ai.request.max_tokens": 4,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.top_k": 7,
        "gen_ai.request.seed": 11,
        "gen_ai.request.stop_sequences": ["zebra"],
        "gen_ai.request.frequency_penalty": 0.25,
        "gen_ai.request.presence_penalty": 0.5,
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.stream": False,
        "gen_ai.usage.input_tokens": answer["usage"]["prompt_tokens"],
        "gen_ai.usage.output_tokens": answer["usage"]["completion_tokens"],
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": traffic.port,
    }
    assert {name: span.attributes.get(name) for name in expected} == expected
    assert "error.type" not in span.attributes and not span.failed


def test_it_says_what_was_cached_and_why_no_more(traffic):
    for name in ("cold", "warm", "streamed", "turn"):
        cache, attributes = traffic.answers[name]["agentcache"], traffic.collector.of(name).attributes
        assert attributes["agentcache.cached_tokens"] == cache["cached_tokens"]
        assert attributes["gen_ai.usage.cache_read.input_tokens"] == cache["cached_tokens"]
        assert attributes["agentcache.computed_tokens"] == cache["computed_tokens"]
        assert attributes.get("agentcache.miss.code") == (cache["miss"] and cache["miss"]["code"])
    assert traffic.collector.of("cold").attributes["agentcache.miss.code"] == "cold"
    assert traffic.collector.of("warm").attributes["agentcache.cached_tokens"] > 0
    session = traffic.answers["turn"]["agentcache"]["session"]
    attributes = traffic.collector.of("turn").attributes
    assert attributes["agentcache.session"] == attributes["gen_ai.conversation.id"] == session


def test_the_first_token_parts_the_span(traffic):
    for name in ("cold", "streamed"):
        span = traffic.collector.of(name)
        first = span.attributes["gen_ai.response.time_to_first_chunk"]
        assert 0 < first <= (span.end - span.start) / 1e9
        parts = sorted((s for s in traffic.collector.spans if s.parent == span.id), key=lambda s: (s.start, s.end))
        assert [part.name for part in parts] == ["queue", "prefill", "decode"]
        queue, prefill, decode = parts
        assert queue.start == span.start and decode.end == span.end
        assert queue.end == prefill.start and prefill.end == decode.start
        assert decode.start == pytest.approx(span.start + first * 1e9, abs=1000)
    assert traffic.collector.of("streamed").attributes["gen_ai.request.stream"] is True
    assert traffic.collector.of("streamed").name.startswith("text_completion ")


def test_failures_have_a_type_and_only_the_servers_own_a_status(traffic):
    seen = {}
    for name in ("too-long", "broken", "gone"):
        span = traffic.collector.of(name)
        seen[name] = span.attributes["http.response.status_code"], span.attributes["error.type"], span.failed
    assert seen == {
        "too-long": (400, traffic.answers["too-long"]["error"]["code"], False),
        "broken": (200, traffic.answers["broken"]["error"]["code"], True),
        "gone": (499, "client_gone", False),
    }
    for name in seen:
        assert (
            not {"agentcache.cached_tokens", "gen_ai.usage.output_tokens"}
            & traffic.collector.of(name).attributes.keys()
        )


def test_nothing_that_was_said_is_sent(traffic):
    for span in traffic.collector.spans:
        assert b"secret" not in span.raw and b"question" not in span.raw


def record(**known: Any) -> RequestRecord:
    fields: dict[str, Any] = {
        "request_id": "r", "answer_id": "", "route": "/v1/messages", "model": "m", "owner": b"", "session": None,
        "streamed": True, "started": 100.0, "first_token_s": 0.5, "total_s": 2.0, "status": 200, "error": None,
        "finish_reasons": (), "prompt_tokens": 1, "cached_tokens": 0, "computed_tokens": 1, "completion_tokens": 1,
        "miss": None, "params": None,
    }  # fmt: skip
    return RequestRecord(**{**fields, **known})


def test_phases_follow_each_other():
    assert list(tracing.phases(record(queue_s=0.2), 2.0)) == [
        ("queue", 0.0, 0.2), ("prefill", 0.2, 0.5), ("decode", 0.5, 2.0),
    ]  # fmt: skip
    assert list(tracing.phases(record(queue_s=None, first_token_s=None), 2.0)) == []
    assert list(tracing.phases(record(queue_s=1.0, first_token_s=None), 2.0)) == [("queue", 0.0, 1.0)]


def test_a_caller_that_is_not_sampled_has_no_span():
    with collector() as found:
        traces = tracing.Traces(found.url)
        for flags, name in (("00", "out"), ("01", "in")):
            parent = {"traceparent": f"00-{TRACE}-{CALLER}-{flags}"}
            traces.note(Exchange(name, "POST", "/v1/messages", parent=parent, record=record()))
        traces.note(Exchange("broken parent", "POST", "/v1/messages", parent={"traceparent": "00-x"}, record=record()))
        _close(traces)
        assert {span.attributes["agentcache.request_id"] for span in found.roots()} == {"in", "broken parent"}


def _close(traces: tracing.Traces) -> None:
    asyncio.run(traces.close())


def test_a_collector_that_refuses_is_told_of_once_and_once_again_when_it_takes(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with collector() as found, live_engine(StubEngine(), Settings(model="stub", otel=found.url)) as server:
        found.status = 400
        for attempt in range(1, 4):
            server.complete("hello", max_tokens=1)
            _wait(lambda least=attempt: len(found.posts) >= least)
        found.status = 200
        server.complete("hello", max_tokens=1)
        _wait(lambda: found.spans)
    told = [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert len(told) == 2, told
    assert "does not take traces" in told[0] and "400" in told[0]
    assert "takes traces again" in told[1]


def _wait(holds: Any) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_requests_are_served_and_the_server_stops_without_a_collector(monkeypatch, caplog):
    monkeypatch.setattr(tracing, "STOP_S", 0.2)
    with live_engine(StubEngine(), Settings(model="stub", otel="http://127.0.0.1:9")) as server:
        for _ in range(20):
            server.complete("hello", max_tokens=1)
    assert "leaving them behind" in caplog.text


def test_the_environment_says_where_to_and_who(monkeypatch):
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        traces = tracing.Traces("default")
        traces.note(Exchange("r", "POST", "/v1/messages", record=record()))
        _close(traces)
    assert found.posts == ["/v1/traces"]
    assert found.roots()[0].resource["service.name"] == "mine"


@pytest.mark.parametrize(
    "given, posted",
    [
        ("http://host:4318", "http://host:4318/v1/traces"),
        ("http://host:4318/", "http://host:4318/v1/traces"),
        ("https://host/otlp/v1/traces?x=1", "https://host/otlp/v1/traces?x=1"),
    ],
)
def test_a_base_url_gets_the_path_of_traces(given, posted):
    assert tracing.traces_url(given) == posted


@pytest.mark.parametrize("given", ["localhost:4318", "grpc://host:4317", "", "http://"])
def test_what_is_no_collector_is_refused_at_start(given):
    with pytest.raises(SettingsError, match="--otel"):
        load_settings({"otel": given})


def test_without_its_packages_it_is_refused_at_start(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "otlp" in name else real(name))
    with pytest.raises(SettingsError, match=r"pip install '\.\[otel\]'"):
        load_settings({"otel": "default"})
    assert load_settings({}).otel is None
