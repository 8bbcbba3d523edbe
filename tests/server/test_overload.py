"""A full queue, and an engine whose steps fail: what clients and load balancers are told."""

from __future__ import annotations

import threading
import time

import pytest
from live import drain, live_server, probe, stream

PROMPT = list(range(40))


@pytest.fixture
def server(tiny):
    with live_server(tiny.folder, page_size=16, num_pages=128, max_running=1, max_waiting=2) as running:
        yield running
        drain(running)


def wait_until(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_full_queue_is_a_429_that_says_when_to_come_back(server, tiny):
    server.complete(PROMPT, max_tokens=1)
    fields = {"max_tokens": 400}
    threads = [threading.Thread(target=server.complete, args=([n, *PROMPT],), kwargs=fields) for n in range(3)]
    threads[0].start()
    wait_until(lambda: server.pages()["running"] == 1)
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: server.pages()["waiting"] == 2)
    for body in ({"stream": True}, {"stream": False}):
        refused = server.http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 1, **body})
        assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 60
        error = refused.json()["error"]
        assert error["code"] == "queue_full" and "2 requests wait" in error["message"]
    for thread in threads:
        thread.join()
    probe(server, PROMPT, tiny.greedy(PROMPT, 8))


def fail_steps(server, count: int) -> None:
    for n in range(count):
        server.http.post("/debug/fault", json={"site": "forward", "at": 1})
        reply = server.http.post("/v1/completions", json={"prompt": [n, *PROMPT], "max_tokens": 4})
        assert reply.status_code == 500 and reply.json()["error"]["code"] == "engine_error"


def test_a_failed_step_is_a_500_or_an_error_event_and_the_server_goes_on(server, tiny):
    fail_steps(server, 1)
    assert server.http.get("/health").status_code == 200
    server.http.post("/debug/fault", json={"site": "forward", "at": 4})
    with server.http.stream("POST", "/v1/completions", json={"prompt": PROMPT, "stream": True}) as reply:
        lines = [line for line in reply.iter_lines() if line]
    assert reply.status_code == 200 and '"error"' in lines[-2] and lines[-1] == "data: [DONE]"
    probe(server, PROMPT, tiny.greedy(PROMPT, 8))


def test_repeated_failure_turns_health_red_and_a_probe_turns_it_green(server, tiny):
    fail_steps(server, 5)
    health = server.http.get("/health")
    assert health.status_code == 503
    assert health.json() == {"status": "unavailable", "reason": "the last 5 steps failed"}
    for path, body in (
        ("/v1/completions", {"prompt": PROMPT}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "stream": True}),
    ):
        refused = server.http.post(path, json=body)
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "engine_failing"
    server.http.post("/debug/clock", json={"advance_s": 1})  # nobody has to ask for anything
    wait_until(lambda: server.http.get("/health").status_code == 200)
    probe(server, PROMPT, tiny.greedy(PROMPT, 8))


def test_while_probes_fail_health_stays_red(server, tiny):
    fail_steps(server, 5)
    for _ in range(3):
        server.http.post("/debug/fault", json={"site": "forward", "at": 1})
        server.http.post("/debug/clock", json={"advance_s": 31})
        time.sleep(0.05)
        assert server.http.get("/health").status_code == 503
    server.http.post("/debug/clock", json={"advance_s": 31})
    wait_until(lambda: server.http.get("/health").status_code == 200)
    assert stream(server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 2})
