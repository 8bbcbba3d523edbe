"""``--live``: findings of a running server, what they advise, and servers that have none to give."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from live import LiveServer, live_server
from tiny_folder import write_tiny_folder

from agentcache.lint.live.report import LiveReport, live_findings, report_on
from agentcache.lint.live.server import Answer, LiveError, address_of, fetch

RULES = (
    " Read the file, run the tests, and say what is wrong with the parser. The cache keeps pages of keys and values and the agent"
    " sends the same long beginning again and again."
)
SYSTEM = "You are a helpful agent." + RULES


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live-model")
    write_tiny_folder(folder)
    return folder


def system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def say(server: LiveServer, *messages: Any, **fields: Any) -> dict[str, Any]:
    return server.chat(list(messages), **{"max_tokens": 2, **fields})


def session(server: LiveServer) -> str:
    return str(server.http.post("/v1/sessions", json={"system": SYSTEM}).raise_for_status().json()["id"])


def flood(server: LiveServer, seed: str) -> None:
    """Prompts that have nothing in common with each other or with anything else."""
    drawn = random.Random(seed)
    for _ in range(12):
        server.complete([drawn.randrange(200) for _ in range(120)], max_tokens=1)


def found(report: LiveReport) -> list[str]:
    """Codes; where shared parts end is another matter in prompts as short as these."""
    return [finding.code for finding in report.findings if not finding.code.startswith("AC50")]


def only(report: LiveReport) -> Any:
    (finding,) = [finding for finding in report.findings if not finding.code.startswith("AC50")]
    return finding


# -- the rules' twins: a server that shows the defect, and the same without it ------------------------------------


@pytest.mark.parametrize(("pages", "codes"), [(48, ["AC801"]), (512, [])], ids=["failing", "clean"])
def test_ac801_twins(model, pages, codes):
    with live_server(model, page_size=16, num_pages=pages) as server:
        conversations = [session(server) for _ in range(2)]
        for question in ("Why does it fail?", "and now?", "and then?"):
            for conversation in conversations:
                say(server, user(question), session=conversation, max_tokens=8)
            flood(server, question)
        report = live_findings(server.url)
    assert found(report) == codes
    if codes:
        finding = only(report)
        assert finding.location.file == server.url and finding.location.record is None
        assert f"of {report.requests} requests" in finding.message and finding.tokens_lost > 100
        assert "pages, the pool has 48 (--num-pages)" in finding.help


@pytest.mark.parametrize(("ttl_s", "codes"), [(60, ["AC802"]), (600, [])], ids=["failing", "clean"])
def test_ac802_twins(model, ttl_s, codes):
    with live_server(model, page_size=16, num_pages=48) as server:
        conversation = session(server)
        say(server, user("Why does it fail?"), session=conversation, max_tokens=20)
        server.http.post(f"/v1/sessions/{conversation}/pin", json={"ttl_s": ttl_s}).raise_for_status()
        server.http.post("/debug/clock", json={"advance_s": 61}).raise_for_status()
        flood(server, "a")
        say(server, user("and now?"), session=conversation)
        report = live_findings(server.url)
    assert found(report) == codes
    if codes:
        assert "leases of a session had run out" in only(report).message and only(report).session == conversation


@pytest.mark.parametrize("moved", [True, False], ids=["failing", "clean"])
def test_ac803_twins(model, moved):
    """Three chats without sessions, one turn further each; half of each is held by another server, or all by one."""
    with (
        live_server(model, page_size=16, num_pages=512) as first,
        live_server(model, page_size=16, num_pages=512) as second,
    ):
        for number in range(3):
            messages = [system(SYSTEM), user(f"{'again and ' * number} why does it fail?")]
            for turn in range(number + 3):
                server = second if moved and turn > number else first
                reply = say(server, *messages, max_tokens=8)
                messages += [reply["choices"][0]["message"], user(f"{turn}, and now?")]
        here = live_findings((second if moved else first).url)
    assert found(here) == (["AC803"] if moved else [])
    if moved:
        finding = only(here)
        assert finding.confidence == "suspected" and finding.tokens_lost_kind == "upper_bound"
        assert "(3 of 6 requests" in finding.message and "it was started at 20" in finding.help


@pytest.mark.parametrize(("enabled", "codes"), [(False, ["AC804"]), (True, [])], ids=["failing", "clean"])
def test_ac804_twins(model, enabled, codes):
    with live_server(model, page_size=16, num_pages=64, prefix_cache=enabled) as server:
        for text in ("hi", "hello", "hey"):
            say(server, system(SYSTEM), user(text))
        report = live_findings(server.url)
    assert found(report) == codes
    if codes:
        assert "prefix cache is off" in only(report).message and "(3 of 3 requests" in only(report).message


# -- merging ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keyed(model):
    with live_server(model, page_size=16, num_pages=512, api_keys=("one", "two"), admin_keys=("boss",)) as server:
        yield server


def test_the_same_defect_of_many_requests_is_one_finding_with_what_all_lost(keyed):
    for clock in ("10:30:05", "10:31:47", "10:33:12", "10:35:59"):
        last = say(keyed, system(f"It is {clock}.{RULES}"), user("hi"))
    report = live_findings(keyed.url, "one")
    finding = only(report)
    assert (finding.code, finding.location.path, report.requests) == ("AC101", "messages[0].content", 4)
    assert finding.tokens_lost == 3 * last["agentcache"]["findings"][0]["tokens_lost"]
    assert finding.tokens_lost_kind == "estimate" and "(3 of 4 requests, the latest req_" in finding.message
    assert report.cached_tokens < report.prompt_tokens == 4 * last["usage"]["prompt_tokens"]
    assert sum(report.pages[name] for name in ("free", "live", "cached", "pinned")) == report.pages["total"] == 512
    assert report.report.findings == list(report.findings) and report.report.count == 4


def test_another_key_has_findings_of_its_own(keyed):
    report = live_findings(keyed.url, "two")
    assert (report.findings, report.requests, report.prompt_tokens) == ((), 0, 0)


def test_what_is_legitimate_is_no_finding(model):
    with live_server(model, page_size=16, num_pages=64) as server:
        say(server, system(SYSTEM), user("hi"))
        server.http.post("/v1/cache/flush").raise_for_status()
        say(server, system(SYSTEM), user("hi"))
        server.complete("the cache keeps pages", max_tokens=1, echo=True, logprobs=1)
        report = live_findings(server.url)
    assert report.findings == () and set(report.legitimate) == {"AC801", "AC804"}


def answer(**fields: Any) -> Answer:
    cache = {"page_size": 16, "total": 100, "free": 0, "live": 0, "cached": 60, "pinned": 40}
    base = {
        "requests": 9, "with_findings": 0, "prompt_tokens": 900, "cached_tokens": 0, "data": [], "cache": cache,
        "server": {"model": "m", "started": 1e9},
    }  # fmt: skip
    return Answer.model_validate({**base, **fields, "cache": {**cache, **fields.get("cache", {})}})


def evicted(number: int, lost: int, session: str) -> dict[str, Any]:
    finding = {
        "code": "AC801", "name": "evicted", "severity": "warning", "verdict": "unavoidable", "tokens_lost": lost,
        "location": {"file": f"sessions/{session}", "token": number}, "tokens_lost_kind": "exact", "message": "gone",
        "a_newer_field": 1,
    }  # fmt: skip
    return {
        "request_id": f"req_{number}", "session": session, "started": 1e9, "prompt_tokens": 900, "cached_tokens": 0,
        "miss": {"code": "evicted"}, "findings": [finding],
    }  # fmt: skip


def test_the_working_set_counts_each_conversation_once():
    rows = [evicted(1, 160, "a"), evicted(2, 320, "a"), evicted(3, 32, "b")]
    (finding,) = report_on(answer(data=rows), "http://x").findings
    assert finding.tokens_lost == 512 and finding.tokens_lost_kind == "exact" and finding.session is None
    assert "about 1,952 tokens needs 122 pages, the pool has 100 (--num-pages)" in finding.help
    assert "40 of them are pinned" in finding.help


def clock(number: int, char: int | None, path: str = "messages[0].content", code: str = "AC101") -> dict[str, Any]:
    where = {"file": "sessions/a", "path": path, "char": char}
    found = {"code": code, "name": "n", "severity": "error", "tokens_lost": 40, "tokens_lost_kind": "exact"}
    return {**evicted(number, 40, "a"), "findings": [{**found, "location": where, "message": "a time"}]}


def test_one_clock_is_one_finding_at_whichever_digit_it_parts():
    rows = [clock(1, 21), clock(2, 18), clock(3, 24)]
    (finding,) = report_on(answer(data=rows), "http://x").findings
    assert (finding.tokens_lost, "(3 of 9 requests, the latest req_1)" in finding.message) == (120, True)
    others = [clock(4, 200), clock(5, 21, "messages[2].content"), clock(6, 21, code="AC102"), clock(7, None)]
    assert len(report_on(answer(data=[*rows, *others, *others]), "http://x").findings) == 5


def test_a_keys_quota_is_named_where_that_is_what_evicts():
    cache = {"evictions": {"quota": 50, "room": 3}, "namespace_pages": 20}
    (finding,) = report_on(answer(data=[evicted(1, 160, "a")], cache=cache), "http://x").findings
    assert "the key's share is 20 pages (--namespace-pages), and about 10 more" in finding.help


def test_examples_in_a_prompt_are_no_conversation_from_elsewhere():
    rows = [
        {"request_id": f"req_{n}", "started": 1e9, "replies": 3, "prompt_tokens": 90, "cached_tokens": 0}
        for n in range(5)
    ]
    assert report_on(answer(continued=rows), "http://x").findings == ()
    rows[2]["replies"] = 7
    (finding,) = report_on(answer(continued=rows), "http://x").findings
    assert finding.code == "AC803" and "(5 of 9 requests, the latest req_0)" in finding.message
    assert "0 s before the first of them came" in finding.help


@pytest.mark.parametrize(
    "fields",
    [
        {"cache": {"page_size": 0}},
        {"cache": {"total": -1}},
        {"requests": True},
        {"requests": 10**400},
        {"server": {"model": "m", "started": 1e300}},
        {"data": [{**evicted(1, 10**400, "a")}]},
        {"data": [{**evicted(1, -1, "a")}]},
        {"data": [{**evicted(1, 1, "a"), "findings": [{"code": "AC101"}]}]},
        {"data": 7},
    ],
)
def test_figures_that_cannot_be_are_no_answer(fields):
    with pytest.raises(ValueError):
        answer(**fields)


# -- servers that have none to give -------------------------------------------------------------------------------


@contextmanager
def other_server(status: int, body: bytes, delay_s: float = 0.0) -> Iterator[str]:
    """A server of another kind, which answers everything the same."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body) + (1 if delay_s else 0)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
            stopped.wait(delay_s)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    stopped = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        stopped.set()
        server.shutdown()
        server.server_close()


def refused(url: str, key: str | None = None) -> str:
    with pytest.raises(LiveError) as caught:
        live_findings(url, key)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_or_wrong_key_is_told(keyed):
    assert refused(keyed.url) == f"{keyed.url} needs an API key"
    assert refused(keyed.url, "three") == f"{keyed.url} does not know this API key"
    assert "no HTTP header" in refused(keyed.url, "a\nb")


def test_nobody_there_is_told():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "cannot be reached" in refused(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, b"not found", "has no /v1/findings: is it an agentcache server"),
        (200, b"<html>hello</html>", "something else than findings"),
        (200, b'{"data": []}', "something else than findings (requests:"),
        (200, b"[" * 100_000, "something else than findings"),
        (200, b"\xff\xfe", "something else than findings"),
        (
            500,
            b'{"error": {"message": "it is \\u001b[31m broken\\n today"}}',
            "answered 500: it is  [31m broken  today",
        ),
        (302, b"", "answered 302, expected 200"),
        (503, b'{"error": "x"}', "answered 503, expected 200"),
    ],
)
def test_another_kind_of_server_is_told(status, body, words):
    with other_server(status, body) as url:
        assert words in refused(url)


def test_an_answer_that_does_not_end_is_given_up():
    with other_server(200, b"{", delay_s=30) as url:
        began = time.monotonic()
        with pytest.raises(LiveError, match=r"did not answer within 0.3 s"):
            fetch(url, None, 1, timeout_s=0.3)
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8100", "http://127.0.0.1:8100/v1/findings"),
        ("127.0.0.1:8100/", "http://127.0.0.1:8100/v1/findings"),
        ("localhost:8100/v1", "http://localhost:8100/v1/findings"),
        ("https://example.org/llm/v1/?x=1#y", "https://example.org/llm/v1/findings"),
        ("http://[::1]:8100/v1/findings", "http://[::1]:8100/v1/findings"),
    ],
)
def test_addresses_are_taken_as_people_write_them(url, address):
    assert address_of(url) == address


@pytest.mark.parametrize(
    "url", ["", "http://", "ftp://x", "http://[::1", "http://x:port", "file:///etc/passwd", "\x00"]
)
def test_what_is_no_address_is_told(url):
    assert "expected the URL of a server" in refused(url)


def test_a_server_can_be_told_in_json(keyed):
    """Findings have one shape, wherever they come from."""
    for finding in live_findings(keyed.url, "one").findings:
        assert json.loads(finding.model_dump_json())["location"]["file"] == keyed.url
