"""The host and disk tiers of a running server, against Hugging Face on the same weights."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from live import raw_request
from reference import cached, random_ids

FIGURES = {"max_tokens": 4, "logprobs": 5, "return_token_ids": True}


@pytest.mark.parametrize("delay_ms", [0, 5, 50])
def test_pages_that_come_back_from_the_host_are_the_right_ones(serve, reference, delay_ms):
    prompts = [random_ids(200, n) for n in range(12)]
    requests = 120 if delay_ms < 50 else 40
    with serve(num_pages=24, host_pages=200) as server:
        if delay_ms:
            for at in range(1, 2000, 7):
                body = {"site": "host_copy", "at": at, "delay_ms": delay_ms}
                server.http.post("/debug/fault", json=body).raise_for_status()
        rng = random.Random(delay_ms)
        order = [rng.choice(prompts) for _ in range(requests)]
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda prompt: server.complete(prompt, **FIGURES), order))
        for prompt, reply in zip(order, replies, strict=True):
            reference.check(prompt, reply, 4)
        assert sum(cached(reply) > 0 for reply in replies) >= requests / 2
        assert sum(reply["agentcache"]["tiers"]["host"] > 0 for reply in replies) > requests / 4


def test_a_client_that_leaves_while_its_pages_come_back_leaks_nothing(serve, reference):
    prompts = [random_ids(200, n) for n in range(6)]
    with serve(num_pages=24, host_pages=200) as server:
        for prompt in prompts:
            server.complete(prompt, max_tokens=1)
        for n in range(12):
            server.http.post("/debug/fault", json={"site": "host_copy", "at": 1, "delay_ms": 20}).raise_for_status()
            with contextlib.closing(
                raw_request(server, "/v1/completions", {"prompt": prompts[n % 6], "max_tokens": 200, "stream": True})
            ):
                threading.Event().wait(0.005 * (n % 4))
        for prompt in prompts:
            reference.check(prompt, server.complete(prompt, **FIGURES), 4)


def test_a_prompt_is_warm_after_a_restart_and_only_for_its_own_namespace(serve, reference, tmp_path):
    prompt = random_ids(100, "disk")
    with serve(num_pages=64, disk_dir=tmp_path) as server:
        server.complete(prompt, **FIGURES)
        server.complete(prompt, cache_salt="mine", **FIGURES)
    with serve(num_pages=64, disk_dir=tmp_path) as server:
        other = server.complete(prompt, cache_salt="theirs", **FIGURES)
        assert cached(other) == 0
        for fields in ({}, {"cache_salt": "mine"}):
            reply = server.complete(prompt, **FIGURES, **fields)
            reference.check(prompt, reply, 4)
            assert cached(reply) == reply["agentcache"]["tiers"]["disk"] == 96


def test_spoiled_files_cost_a_hit_and_nothing_else(serve, reference, tmp_path):
    prompt = random_ids(100, "disk")
    with serve(num_pages=64, disk_dir=tmp_path) as server:
        server.complete(prompt, **FIGURES)
    files = sorted(tmp_path.glob("??/*.page"))
    assert len(files) >= 6
    for n, path in enumerate(files):
        raw = path.read_bytes()
        path.write_bytes([raw[:50], raw[:-1], b"", raw[:-1] + bytes([raw[-1] ^ 255])][n % 4])
    with serve(num_pages=64, disk_dir=tmp_path) as server:
        reply = server.complete(prompt, **FIGURES)
        reference.check(prompt, reply, 4)
        assert cached(reply) == 0
        reference.check(prompt, server.complete(prompt, **FIGURES), 4)


def test_pages_of_another_model_are_never_served(serve, tiny, tmp_path):
    from live import live_server
    from reference import Reference
    from tiny_folder import write_tiny_folder

    prompt = random_ids(64, "foreign")
    disk = tmp_path / "disk"
    with serve(num_pages=64, disk_dir=disk) as server:
        server.complete(prompt, **FIGURES)
    other = Reference(write_tiny_folder(tmp_path / "other", seed=1))
    with live_server(tmp_path / "other", num_pages=64, disk_dir=disk) as server:
        reply = server.complete(prompt, **FIGURES)
        other.check(prompt, reply, 4)
        assert cached(reply) == 0


def test_the_tiers_are_seen_in_the_page_counts(serve, tmp_path):
    with serve(num_pages=20, host_pages=8, disk_dir=tmp_path) as server:
        for n in range(6):
            server.complete(random_ids(100, n), max_tokens=1)
        tiers = {tier["name"]: tier for tier in server.http.get("/v1/cache").json()["tiers"]}
        assert tiers["host"]["used"] == tiers["host"]["pages"] == 8 == tiers["host"]["capacity"]
        assert set(tiers) == {"host", "disk"} and tiers["disk"]["unit"] == "bytes"
        assert json.dumps(tiers)
        with pytest.raises(httpx.HTTPStatusError):
            server.http.post("/debug/fault", json={"site": "moon", "at": 1}).raise_for_status()
