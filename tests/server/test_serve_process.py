"""The served process: its banner, its signals, its exit code, and its figures."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
import time

import httpx
import pytest
from live import drain
from served import served
from stub_engine import StubEngine

from agentcache.errors import SettingsError
from agentcache.server.app import run_server
from agentcache.server.banner import print_banner
from agentcache.settings import Settings


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_streams_with_an_error_event_and_exits_with_0(tiny, number):
    with served(tiny.folder) as (process, address, lines):
        assert "64 of 16 tokens" in "".join(lines)
        assert f"{address}/ui\n" in "".join(lines)
        assert httpx.get(address + "/health").json() == {"status": "ok"}
        with httpx.stream(
            "POST", address + "/v1/completions", json={"prompt": [1, 2, 3], "stream": True}, timeout=30
        ) as reply:
            incoming = reply.iter_lines()
            next(incoming)
            process.send_signal(number)
            began = time.monotonic()
            rest = [line for line in incoming if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2].removeprefix("data: "))["error"]["code"] == "shutting_down"
        assert process.wait(timeout=10) == 0
        assert time.monotonic() - began < 10
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_neither_a_step_that_hangs_nor_a_second_signal_spoils_the_end(tiny, signals):
    with served(tiny.folder, "--enable-test-hooks") as (process, address, _):
        httpx.post(address + "/debug/fault", json={"site": "forward", "at": 2, "delay_ms": 60_000}).raise_for_status()
        # A token that is drawn may be a part of a character, which is shown with the next one only: the likeliest is whole.
        body = {"prompt": [1, 2, 3], "stream": True, "temperature": 0}
        with httpx.stream("POST", address + "/v1/completions", json=body) as reply:
            next(reply.iter_lines())
            began = time.monotonic()
            for number in signals:
                process.send_signal(number)
                time.sleep(0.5)
            assert process.wait(timeout=10) == 0
            assert time.monotonic() - began < 10
            assert "Traceback" not in process.stderr.read()


def test_the_banner_names_what_is_shared_with_other_servers_where_there_is_such(capsys):
    url = "rediss://me:hush@127.0.0.1:6390/0?ca=/secret"
    settings = Settings(model="stub", replica="r0", store=url, kv_events="tcp://*:5557")
    print_banner(StubEngine(), settings, "http://127.0.0.1:1")
    facts = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (facts["replica"], facts["store"], facts["events"]) == (
        "r0",
        "rediss://***@127.0.0.1:6390/0",
        "tcp://*:5557",
    )
    print_banner(StubEngine(), Settings(model="stub"), "http://127.0.0.1:1")
    assert not {"replica", "store", "events"} & {line.split()[0] for line in capsys.readouterr().out.splitlines()}


def test_an_address_that_is_taken_or_unknown_is_a_sentence_that_names_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=re.escape(f"--host 127.0.0.1 --port {port}: ")):
            run_server(StubEngine(), Settings(model="stub", port=port))
    with pytest.raises(SettingsError, match=re.escape("--host no-such-host.invalid")):
        run_server(StubEngine(), Settings(model="stub", host="no-such-host.invalid", api_keys=("key",)))


def parse_metrics(text):
    return {
        name + (labels or ""): float(value)
        for name, labels, value in re.findall(r"^([a-z:_]+)(\{.*?\})? (\S+)$", text, re.MULTILINE)
    }


def test_metrics_add_up_and_twins_agree(server, tiny):
    before = parse_metrics(server.http.get("/metrics").text)
    prompt = list(range(100, 170))
    threads = [
        threading.Thread(target=server.complete, args=(prompt,), kwargs={"max_tokens": 5, "cache_salt": "metrics"})
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drain(server)
    after = parse_metrics(server.http.get("/metrics").text)

    def gained(name):
        return after[name] - before.get(name, 0)

    states = ("free", "live", "cached", "pinned")
    assert sum(after[f'agentcache_pages{{state="{s}"}}'] for s in states) == after["agentcache_pages_total"] == 256
    assert gained("agentcache_prompt_tokens_total") == 210
    assert gained("agentcache_generation_tokens_total") == 15
    cached = gained('agentcache_cached_tokens_total{tier="device"}')
    assert cached in (64, 69, 128, 133, 138)
    label = f'{{model_name="{server.engine.info.model_name}"}}'
    assert gained(f"vllm:prompt_tokens_total{label}") == gained(f"vllm:prefix_cache_queries_total{label}") == 210
    assert gained(f"vllm:prefix_cache_hits_total{label}") == cached
    assert gained("agentcache_time_to_first_token_seconds_count") == 3
    assert gained("agentcache_inter_token_latency_seconds_count") == 12
    assert gained(f"vllm:time_to_first_token_seconds_count{label}") == 3
    assert gained("agentcache_queue_time_seconds_count") == 3
    assert gained("agentcache_request_prompt_tokens_sum") == 210
    assert gained("agentcache_steps_total") >= 5
    assert after['agentcache_requests{state="running"}'] == after['agentcache_requests{state="waiting"}'] == 0
    assert after[f"vllm:kv_cache_usage_perc{label}"] == 0
    success = f'vllm:request_success_total{{finished_reason="length",model_name="{server.engine.info.model_name}"}}'
    assert gained(success) == 3
    assert sum(value - before.get(name, 0) for name, value in after.items() if "agentcache_miss_total" in name) >= 1


def test_a_snapshot_outlives_a_process_that_was_killed(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTCACHE_HOME", str(tmp_path))
    turn = {"temperature": 0, "max_tokens": 6, "return_token_ids": True}

    def say(address: str, session: str, text: str) -> dict:
        body = {**turn, "session": session, "messages": [{"role": "user", "content": text}]}
        return httpx.post(address + "/v1/chat/completions", json=body, timeout=30).raise_for_status().json()

    with served(tiny.folder) as (process, address, _):
        session = httpx.post(address + "/v1/sessions", json={"system": "Be brief."}).json()["id"]
        say(address, session, "one")
        httpx.post(f"{address}/v1/sessions/{session}/snapshot", json={"name": "kept"}).raise_for_status()
        before = say(address, session, "two")
        process.kill()
    with served(tiny.folder) as (_, address, _):
        assert httpx.get(f"{address}/v1/sessions/{session}").status_code == 404
        restored = httpx.post(address + "/v1/sessions", json={"from_snapshot": "kept"}).raise_for_status().json()
        after = say(address, restored["id"], "two")
    assert after["prompt_token_ids"] == before["prompt_token_ids"]
    assert after["choices"][0]["token_ids"] == before["choices"][0]["token_ids"]
