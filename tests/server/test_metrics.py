"""``/metrics`` against the answers that the same requests got: every figure worked out a second time, from outside."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from live import LiveServer, live_server, raw_request, stream
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

PAGES = 24


class Figures(dict[tuple[str, frozenset[tuple[str, str]]], float]):
    """A scrape: samples by name and labels."""

    def value(self, name: str, **labels: str) -> float:
        return self[name, frozenset(labels.items())]

    def labelled(self, name: str, label: str) -> dict[str, float]:
        return {dict(labels)[label]: value for (key, labels), value in self.items() if key == name and value}

    def answered(self) -> float:
        """HTTP requests that ended, scrapes aside."""
        name = "agentcache_http_requests_total"
        return sum(n for (key, labels), n in self.items() if key == name and ("route", "/metrics") not in labels)

    def since(self, before: Figures) -> Figures:
        return Figures({key: value - before.get(key, 0) for key, value in self.items()})


def scrape(server: LiveServer) -> Figures:
    text = server.http.get("/metrics").text
    return Figures(
        {(s.name, frozenset(s.labels.items())): s.value for family in parse_text(text) for s in family.samples}
    )


def fresh(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(400), k=length)


@pytest.fixture(scope="module")
def server(tiny):
    """One with too few pages for what is asked of it, and a tier below."""
    with live_server(tiny.folder, num_pages=PAGES, host_pages=64, max_running=4, prefill_chunk=64) as running:
        yield running


@pytest.fixture(scope="module")
def traffic(server) -> tuple[Figures, list[dict[str, Any]], list[int]]:
    """Requests of all kinds; what ``/metrics`` gained by them, their answers, and how many prompts each had."""
    before = scrape(server)
    first, second = fresh(90, 1), fresh(60, 2)
    bodies: list[dict[str, Any]] = [
        {"prompt": first, "max_tokens": 5},
        {"prompt": first, "max_tokens": 3},  # a full hit
        {"prompt": first[:40] + second, "max_tokens": 4, "n": 3},  # parts inside a page
        {"prompt": [second, first[:33]], "max_tokens": 2},
        {"prompt": fresh(8, 3), "max_tokens": 1},  # below a page
        {"prompt": fresh(300, 4), "max_tokens": 2},  # takes the place of what was kept
        {"prompt": first, "max_tokens": 2},  # comes back from below
    ]
    answers = [server.complete(body.pop("prompt"), **body) for body in bodies]
    last = stream(
        server, "/v1/completions", {"prompt": first, "max_tokens": 6, "stream_options": {"include_usage": True}}
    )
    answers.append(last[-1])
    return scrape(server).since(before), answers, [1, 1, 1, 2, 1, 1, 1, 1]


def summed(answers: list[dict[str, Any]], name: str) -> int:
    return sum(answer["agentcache"][name] for answer in answers)


def test_tokens_are_those_of_the_answers(traffic):
    gained, answers, _ = traffic
    assert gained.value("agentcache_prompt_tokens_total") == sum(a["usage"]["prompt_tokens"] for a in answers)
    assert gained.value("agentcache_computed_tokens_total") == summed(answers, "computed_tokens")
    generated = sum(a["usage"]["completion_tokens"] for a in answers)
    assert gained.value("agentcache_generation_tokens_total") == generated
    tiers: Counter[str] = Counter()
    for answer in answers:
        tiers.update(answer["agentcache"]["tiers"])
    assert tiers["host"] > 0 and tiers["device"] > 0, "the traffic was to use both"
    for tier in ("device", "host", "disk", "store"):
        assert gained.value("agentcache_cached_tokens_total", tier=tier) == tiers[tier]
    cached = sum(a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers)
    assert sum(tiers.values()) == cached


def test_misses_are_those_of_the_answers(traffic):
    gained, answers, _ = traffic
    told = Counter(a["agentcache"]["miss"]["code"] for a in answers if a["agentcache"]["miss"])
    assert len(told) > 1
    assert gained.labelled("agentcache_miss_total", "code") == told


def test_histograms_count_requests_sequences_and_gaps(traffic):
    gained, answers, prompts = traffic
    lengths = [choice["usage"]["completion_tokens"] for choice in answers]
    sequences = [1, 1, 3, 2, 1, 1, 1, 1]
    assert gained.value("agentcache_time_to_first_token_seconds_count") == sum(prompts)
    assert gained.value("agentcache_queue_time_seconds_count") == sum(prompts)
    assert gained.value("agentcache_inter_token_latency_seconds_count") == sum(lengths) - sum(sequences)
    assert gained.value("agentcache_request_prompt_tokens_count") == sum(prompts)
    assert gained.value("agentcache_request_prompt_tokens_sum") == sum(a["usage"]["prompt_tokens"] for a in answers)
    assert gained.value("agentcache_request_generation_tokens_count") == sum(sequences)
    assert gained.value("agentcache_request_generation_tokens_sum") == sum(lengths)
    assert gained.value("agentcache_step_time_seconds_count") == gained.value("agentcache_steps_total")
    # 60 + 33 + 8 tokens and so on: the bucket of 64 holds the prompts of 60, 33 and 8
    assert gained.value("agentcache_request_prompt_tokens_bucket", le="64.0") == 3
    assert gained.labelled("agentcache_finished_total", "reason") == {"length": sum(sequences)}


def test_the_twins_say_the_same(server, traffic):
    figures = scrape(server)
    model = {"model_name": server.engine.info.model_name}
    twins = {
        "vllm:prompt_tokens_total": "agentcache_prompt_tokens_total",
        "vllm:prefix_cache_queries_total": "agentcache_prompt_tokens_total",
        "vllm:generation_tokens_total": "agentcache_generation_tokens_total",
        "vllm:num_preemptions_total": "agentcache_preemptions_total",
        "vllm:time_to_first_token_seconds_count": "agentcache_time_to_first_token_seconds_count",
        "vllm:inter_token_latency_seconds_sum": "agentcache_inter_token_latency_seconds_sum",
        "vllm:request_queue_time_seconds_sum": "agentcache_queue_time_seconds_sum",
        "vllm:request_prompt_tokens_sum": "agentcache_request_prompt_tokens_sum",
    }
    for theirs, ours in twins.items():
        assert figures.value(theirs, **model) == figures.value(ours), theirs
    hits = sum(figures.labelled("agentcache_cached_tokens_total", "tier").values())
    assert figures.value("vllm:prefix_cache_hits_total", **model) == hits
    ended = figures.value("vllm:request_success_total", finished_reason="length", **model)
    assert ended == figures.value("agentcache_finished_total", reason="length")
    config = {"block_size": "16", "num_gpu_blocks": str(PAGES), "enable_prefix_caching": "True", **model}
    assert figures.value("vllm:cache_config_info", **config) == 1


def test_pages_add_up_and_are_counted_as_they_leave(server):
    server.http.post("/v1/cache/flush")
    server.complete(fresh(160, 10), max_tokens=1)
    before, kept = scrape(server), server.pages()
    assert before.labelled("agentcache_pages", "state") == {
        state: kept[state] for state in ("free", "live", "cached", "pinned") if kept[state]
    }
    server.complete(fresh(320, 11), max_tokens=1)  # 20 whole pages, of which 24 - kept are free
    after, now = scrape(server), server.pages()
    for figures in (before, after):
        assert sum(figures.labelled("agentcache_pages", "state").values()) == PAGES
        assert figures.value("agentcache_pages_total") == PAGES
    left = after.since(before).labelled("agentcache_evictions_total", "reason")
    assert sum(left.values()) == kept["cached"] + 20 - now["cached"] > 0
    server.http.post("/v1/cache/flush")
    flushed = scrape(server).since(after).labelled("agentcache_evictions_total", "reason")
    assert flushed == {"flush": now["cached"]}


def test_preemptions_are_those_of_the_answers(server):
    before = scrape(server)

    def one(seed: int) -> dict[str, Any]:
        return server.complete(fresh(70, seed), max_tokens=150)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(one, range(20, 24)))
    told = summed(answers, "preemptions")
    assert told > 0
    gained = scrape(server).since(before)
    assert gained.value("agentcache_preemptions_total") == told
    assert gained.value("agentcache_computed_tokens_total") == summed(answers, "computed_tokens")
    assert gained.value("agentcache_prompt_tokens_total") == 4 * 70  # coming back is no second admission


def test_sessions_are_those_that_are_kept(server):
    assert scrape(server).value("agentcache_sessions") == 0
    made = [server.http.post("/v1/sessions", json={"system": "Be brief."}).json()["id"] for _ in range(2)]
    assert scrape(server).value("agentcache_sessions") == 2
    for name in made:
        server.http.delete(f"/v1/sessions/{name}")
    assert scrape(server).value("agentcache_sessions") == 0


def test_what_runs_and_waits_is_shown_while_it_does(server):
    """Five streams, four places: the engine is held up while we look."""
    long = {"max_tokens": 40, "stream": True}
    bodies = [{"prompt": fresh(20, seed), **long} for seed in range(30, 35)]
    server.http.post("/debug/fault", json={"site": "forward", "at": 4, "delay_ms": 800})
    with ThreadPoolExecutor(5) as pool:
        replies = [pool.submit(stream, server, "/v1/completions", body) for body in bodies]
        seen = _until(server, lambda figures: figures.value("agentcache_requests", state="running") == 4)
        if not seen.value("agentcache_requests", state="waiting"):
            seen = _until(server, lambda figures: figures.value("agentcache_requests", state="waiting") == 1)
        model = server.engine.info.model_name
        assert seen.value("vllm:num_requests_running", model_name=model) == 4
        assert seen.value("vllm:num_requests_waiting", model_name=model) == 1
        assert 0 < seen.value("vllm:kv_cache_usage_perc", model_name=model) <= 1
        assert seen.value("agentcache_http_requests_in_flight") >= 5
        for reply in replies:
            reply.result()
    assert scrape(server).value("agentcache_http_streams_in_flight") == 0
    assert scrape(server).value("agentcache_http_requests_in_flight") == 1  # the one that asks


def _until(server: LiveServer, holds: Any) -> Figures:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        figures = scrape(server)
        if holds(figures):
            return figures
    raise AssertionError("it never showed")


def test_requests_are_counted_by_route_method_and_status(server):
    before = scrape(server)
    for path in ("/no", "/such", "/path", "/v1/sessions/one/two/three"):
        assert server.http.get(path).status_code == 404
    server.http.request("BREW", "/health")
    server.http.get("/health")
    server.http.get("/v1/sessions/unheard-of")
    server.complete(fresh(5, 40), max_tokens=1)
    server.http.post("/v1/completions", json={"prompt": 5})
    gained = _until(server, lambda now: now.since(before).answered() == 9).since(before)

    def count(route: str, method: str, status: int) -> float:
        return gained.value("agentcache_http_requests_total", route=route, method=method, status=str(status))

    assert count("unknown", "GET", 404) == 4
    assert count("/health", "other", 405) == 1
    assert count("/health", "GET", 200) == 1
    assert count("/v1/sessions/{session_id}", "GET", 404) == 1
    assert count("/v1/completions", "POST", 200) == 1
    assert count("/v1/completions", "POST", 400) == 1
    assert gained.value("agentcache_http_request_seconds_count", route="/v1/completions") == 2
    assert gained.value("agentcache_http_request_seconds_count", route="unknown") == 4
    routes = scrape(server).labelled("agentcache_http_requests_total", "route")
    assert not {"/no", "/such", "/path"} & routes.keys()


def test_the_seconds_of_a_request_end_with_its_last_byte(server):
    before = scrape(server)
    server.http.post("/debug/fault", json={"site": "forward", "at": 3, "delay_ms": 300})
    stream(server, "/v1/completions", {"prompt": fresh(5, 41), "max_tokens": 4})
    key = "agentcache_http_request_seconds_count"
    gained = _until(server, lambda now: now.since(before).value(key, route="/v1/completions")).since(before)
    assert gained.value("agentcache_http_request_seconds_sum", route="/v1/completions") >= 0.3


def test_a_client_that_hangs_up_is_counted(server):
    before = scrape(server)
    connection = raw_request(server, "/v1/completions", {"prompt": fresh(5, 42), "max_tokens": 300, "stream": True})
    connection.recv(64)
    connection.close()
    gained = _until(server, lambda now: now.since(before).labelled("agentcache_http_disconnects_total", "route"))
    gained = gained.since(before)
    assert gained.labelled("agentcache_http_disconnects_total", "route") == {"/v1/completions": 1}
    gone = gained.value("agentcache_http_requests_total", route="/v1/completions", method="POST", status="499")
    assert gone == 1


def test_whoever_accepts_openmetrics_gets_it(server):
    plain = server.http.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    accept = "application/openmetrics-text; version=1.0.0; charset=utf-8, text/plain; version=0.0.4; q=0.5"
    open_metrics = server.http.get("/metrics", headers={"accept": accept})
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert open_metrics.text.endswith("# EOF\n")
    names = {sample.name for family in parse_openmetrics(open_metrics.text) for sample in family.samples}
    assert names >= {name for name, _ in scrape(server)}


def test_the_process_is_there_under_its_usual_names(server):
    figures = scrape(server)
    assert figures.value("process_resident_memory_bytes") > 2**20
    assert figures.value("process_cpu_seconds_total") > 0
    assert figures.value("process_start_time_seconds") <= time.time()
    assert figures.labelled("python_info", "implementation")


def test_counters_are_there_before_they_count(server):
    """What comes first must show as an increase: a series that begins at 1 has none."""
    codes = {dict(labels)["code"] for name, labels in scrape(server) if name == "agentcache_miss_total"}
    assert codes == {
        "cold", "below_page", "diverged", "evicted", "expired", "salt", "model", "in_flight", "template", "disabled",
    }  # fmt: skip


def test_a_scrape_disturbs_nobody(server):
    """Scrapes beside requests: each adds up, and no answer changes."""
    prompt = fresh(40, 50)
    expected = server.complete(prompt, max_tokens=20)["choices"][0]["text"]
    over = threading.Event()

    def look() -> int:
        seen = 0
        with httpx.Client(base_url=server.url) as http:
            while not over.is_set():
                text = http.get("/metrics").text
                pages = [line for line in text.splitlines() if line.startswith("agentcache_pages{")]
                assert sum(float(line.rsplit(" ", 1)[1]) for line in pages) == PAGES
                seen += 1
        return seen

    with ThreadPoolExecutor(1) as pool:
        looks = pool.submit(look)
        for _ in range(5):
            assert server.complete(prompt, max_tokens=20)["choices"][0]["text"] == expected
        over.set()
        assert looks.result() > 0
