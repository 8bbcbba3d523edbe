"""Servers that share a store: warm from it is the same as cold, and nobody's service depends on it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from live import LiveServer, drain, live_server
from memory_store import Dear
from tiny_folder import write_tiny_folder
from valkey_server import Valkey
from waiting import wait_until

from agentcache.engine.build import build_engine
from agentcache.errors import SettingsError
from agentcache.settings import Settings

FIGURES = {"max_tokens": 4, "logprobs": 5, "return_token_ids": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_folder(folder)
    return folder


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    with Valkey(maxmemory="64mb", maxmemory_policy="allkeys-lru") as server:
        yield server


@pytest.fixture(scope="module", params=["folder", "valkey"])
def url(request, tmp_path_factory) -> str:
    if request.param == "folder":
        return f"file://{tmp_path_factory.mktemp('pages')}"
    return request.getfixturevalue("valkey").url


@pytest.fixture
def serve(model) -> Callable[..., Any]:
    @contextmanager
    def start(**settings) -> Iterator[LiveServer]:
        with live_server(model, page_size=16, **{"num_pages": 64, **settings}) as server:
            server.engine._core.metrics.prefill = Dear()
            yield server
            drain(server)

    return start


def ids(length: int, seed: object) -> list[int]:
    return random.Random(f"{length}/{seed}").choices(range(5, 200), k=length)


def said(reply: dict[str, Any]) -> tuple[Any, Any]:
    """Tokens and the bits of their figures."""
    choice = reply["choices"][0]
    return choice["token_ids"], choice["logprobs"]


def from_store(reply: dict[str, Any]) -> int:
    tiers = reply["agentcache"]["tiers"]
    assert sum(tiers.values()) == reply["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tiers["store"]


def metric(server: LiveServer, name: str) -> float:
    text = server.http.get("/metrics", headers=server.as_operator).text
    return float(next(line.rpartition(" ")[2] for line in text.splitlines() if line.rpartition(" ")[0] == name))


def test_a_prompt_of_one_server_is_warm_on_another_with_the_same_bits(serve, url):
    prompt = ids(100, url)
    with serve(store=url) as first:
        cold = first.complete(prompt, **FIGURES)
        assert from_store(cold) == 0
        first.complete(prompt, cache_salt="mine", **FIGURES)
    with serve(store=url) as second:
        assert from_store(second.complete(prompt, cache_salt="another's", **FIGURES)) == 0
        for fields in ({}, {"cache_salt": "mine"}):
            warm = second.complete(prompt, **FIGURES, **fields)
            assert from_store(warm) == 96 and said(warm) == said(cold)
        assert metric(second, 'agentcache_cached_tokens_total{tier="store"}') == 192
        assert metric(second, 'agentcache_store_fetches_total{outcome="fetched"}') == 2
        assert metric(second, 'agentcache_store_pages_total{what="read"}') == 12
        assert metric(second, "agentcache_store_up") == metric(second, "agentcache_store_gate_open") == 1
        store = second.pages()["tiers"][-1]
        assert store["name"] == "store" and store["counts"]["read"] == 12 and store["pages"] == 0
        health = second.http.get("/health").json()
        assert health == {"status": "ok", "components": {"engine": {"status": "ok"}, "store": {"status": "ok"}}}


def test_pages_that_a_full_server_refuses_are_told_from_written_ones(serve):
    with Valkey(maxmemory="1", maxmemory_policy="noeviction") as full, serve(store=full.url) as server:
        for _ in range(2):
            server.complete(ids(100, "full"), **FIGURES)
        wait_until(lambda: metric(server, 'agentcache_store_pages_total{what="full"}') == 6)
        assert metric(server, 'agentcache_store_pages_total{what="written"}') == 0
        counts = server.pages()["tiers"][-1]["counts"]
        assert (counts["full"], counts["written"], counts["failed"]) == (6, 0, 0)
        assert server.http.get("/health").json()["status"] == "ok"


@pytest.mark.parametrize("url", [pytest.param("folder", marks=pytest.mark.long), "valkey"], indirect=True)
def test_two_servers_under_load_share_what_each_computed(serve, url):
    prompts = [ids(150, (url, "load", n)) for n in range(6)]
    with ExitStack() as stack:
        servers = [stack.enter_context(serve(store=url, num_pages=24)) for _ in range(2)]
        cold = [servers[0].complete(prompt, **FIGURES) for prompt in prompts]
        rng = random.Random(0)
        order = [(rng.choice(servers), rng.randrange(6)) for _ in range(60)]
        with ThreadPoolExecutor(6) as pool:
            replies = list(pool.map(lambda turn: turn[0].complete(prompts[turn[1]], **FIGURES), order))
        assert all(said(reply) == said(cold[turn[1]]) for turn, reply in zip(order, replies))
        assert sum(from_store(reply) > 0 for reply in replies) > 5


def test_a_session_s_explanation_counts_what_the_store_is_known_to_have(serve, url):
    with serve(store=url) as server:
        made = server.http.post("/v1/sessions", json={"prompt": ids(20, url)}).json()
        server.complete(ids(70, url), session=made["id"], **FIGURES)
        server.http.post("/v1/cache/flush").raise_for_status()

        def held() -> dict[str, Any]:
            return server.http.get(f"/v1/sessions/{made['id']}/explain").json()["cached"]

        wait_until(lambda: held()["tiers"] == {"device": 0, "host": 0, "disk": 0, "store": 80})
        assert held()["tokens"] == 80


def test_a_store_that_dies_and_comes_back_turns_health_degraded_and_ok_and_costs_no_request(serve):
    with Valkey() as valkey, serve(store=valkey.url) as server:
        server.complete(ids(100, "dies"), **FIGURES)
        valkey.kill()
        wait_until(lambda: server.complete(ids(100, random.random()), **FIGURES) and degraded(server))
        reason = server.http.get("/health").json()["components"]["store"]["reason"]
        assert str(valkey.port) in reason
        assert metric(server, "agentcache_store_up") == 0
        server.complete(ids(100, "while it is dead"), **FIGURES)
        valkey.start()
        wait_until(lambda: not degraded(server))
        assert server.http.get("/health").json()["status"] == "ok"


def degraded(server: LiveServer) -> bool:
    reply = server.http.get("/health")
    assert reply.status_code == 200
    return reply.json()["status"] == "degraded"


def test_a_store_that_cannot_be_reached_at_start_is_told_before_the_model_is_looked_for(tmp_path):
    settings = Settings(model=str(tmp_path / "no such model"), store="redis://:secret@127.0.0.1:1/0")
    with pytest.raises(SettingsError, match="--store") as told:
        build_engine(settings)
    assert "secret" not in str(told.value) and "--store-optional" in str(told.value)


def test_an_optional_store_that_cannot_be_reached_at_start_is_red_and_everything_is_served(serve):
    with serve(store="redis://127.0.0.1:1/0", store_optional=True) as server:
        server.complete(ids(40, "optional"), **FIGURES)
        wait_until(lambda: degraded(server))
