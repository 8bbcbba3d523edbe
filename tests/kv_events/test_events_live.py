"""A real server under real requests, followed by a reader that shares no code with it."""

from __future__ import annotations

import random
import socket
import threading
import time
from typing import Any

import pytest
from event_reader import MEDIUM, View, reading
from live import LiveServer, drain, live_server
from tiny_folder import VOCAB, write_tiny_folder

from agentcache.cache.hashing import namespace_root
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.engine.build import build_engine
from agentcache.errors import AgentCacheError, SettingsError
from agentcache.kv_events.opening import open_events
from agentcache.settings import Settings

ANY = "tcp://127.0.0.1:*"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("tiny")
    write_tiny_folder(found)
    return found


def number(key: bytes) -> int:
    return int.from_bytes(key[8:], "big")


def held(server: LiveServer) -> dict[str, set[int]]:
    """Whole pages of every tier, read off the cache between two steps."""
    found: dict[str, set[int]] = {}
    seen = threading.Event()

    def look(manager: CacheManager) -> None:
        size = 4 * manager.page_size
        found["GPU"] = {number(node.key) for node in manager.tree.nodes() if len(node.tokens) == size}
        for tier in manager.lower.tiers if manager.lower is not None else ():
            pages: Any = getattr(tier, "_pages", None) or getattr(tier, "_sizes", {})
            whole = [key for key, page in pages.items() if isinstance(page, int) or len(page.tokens) == size]
            found[MEDIUM[tier.name]] = {number(key) for key in whole}
        seen.set()

    server.engine.look_soon(look)
    assert seen.wait(20)
    return found


def address_of(server: LiveServer, which: int = 0) -> str:
    return server.engine.neighbours[0].addresses[which]


def chain_of(server: LiveServer, prompt: list[int], key: str | None = None) -> list[int]:
    """Names of a prompt's whole pages, worked out from its tokens."""
    tokens = PagedTokens(prompt, 16, namespace_root(*server.engine.root_base, key, None))
    return [number(each) for each in tokens.keys(tokens.num_full_pages)]


def test_a_reader_knows_what_a_small_server_holds_through_hits_evictions_and_a_flush(folder, tmp_path):
    rng = random.Random(5)
    heads = [[rng.randrange(VOCAB) for _ in range(48)] for _ in range(3)]
    tiers = {"num_pages": 20, "host_pages": 8, "disk_dir": tmp_path / "pages", "disk_size": 2**20}
    with live_server(folder, kv_events=ANY, kv_events_replay=ANY, **tiers) as server:
        with reading(address_of(server), 16) as reader:
            while not reader.socket.poll(20):  # a subscription takes its time to arrive
                server.complete([rng.randrange(VOCAB) for _ in range(20)], max_tokens=1)
            reader.catch_up(address_of(server, 1))
            for turn in range(30):
                prompt = heads[turn % 3] + [rng.randrange(VOCAB) for _ in range(rng.randrange(1, 90))]
                server.complete(prompt, max_tokens=rng.choice((1, 20)), n=rng.choice((1, 2)))
            reader.until(lambda: agrees(reader.view, held(server)))
            kinds = {(event["type"], event.get("medium")) for event in reader.view.events}
            assert kinds >= {("BlockRemoved", "GPU"), ("BlockStored", "CPU"), ("BlockRemoved", "CPU")}
            server.http.post("/v1/cache/flush")
            reader.until(lambda: not reader.view.hashes("GPU") and agrees(reader.view, held(server)))
            assert reader.view.hashes("CPU") and reader.view.hashes("STORAGE")
        drain(server)


def agrees(view: View, found: dict[str, set[int]]) -> bool:
    return all(view.hashes(medium) == pages for medium, pages in found.items())


def test_blocks_are_named_by_the_chain_of_their_tokens_and_namespace(folder):
    prompt = list(range(70))
    with live_server(folder, kv_events=ANY, kv_events_replay=ANY, api_keys=("a", "b"), num_pages=64) as server:
        view = View(16)
        for key in ("a", "b"):
            server.complete(prompt, max_tokens=1)
            server.http.headers["authorization"] = "Bearer b"
            wanted = chain_of(server, prompt, key)
            while not set(wanted) <= view.hashes():
                view.catch_up(address_of(server, 1))
            blocks = [view.blocks["GPU"][name] for name in wanted]
            assert [block.parent for block in blocks] == [None, *wanted[:-1]]
            assert [token for block in blocks for token in block.tokens] == prompt[:64]
        assert len(view.hashes()) == 8  # the same tokens under two keys are two chains


def test_a_whole_cache_that_is_dropped_is_one_short_event(folder):
    with live_server(folder, kv_events=ANY, kv_events_replay=ANY, num_pages=64) as server:
        server.complete(list(range(70)), max_tokens=1)
        view = View(16)
        cleared = "AllBlocksCleared"
        # Only what is left of a batch is told, so pages are flushed once they were; on a busy machine in more than one batch.
        while len([hash for event in view.events for hash in event.get("block_hashes", ())]) < 4:
            view.catch_up(address_of(server, 1))
        assert server.http.post("/v1/cache/flush").json()["flushed"]
        while view.events[-1]["type"] != cleared:
            view.catch_up(address_of(server, 1))
        first, second, *stored, last = [event["type"] for event in view.events]
        assert [first, second, last] == [cleared] * 3 and set(stored) == {"BlockStored"}
        assert held(server) == {"GPU": set()}


def test_what_cannot_be_published_is_an_error_before_a_model_is_looked_for():
    for address, says in (("5557", "expected an address"), ("tcp://127.0.0.1:1", "nobody answers")):
        with pytest.raises(SettingsError, match=f"--kv-events.*{address}.*{says}"):
            build_engine(Settings(model="/no/such/folder", kv_events=address))


def test_a_model_that_cannot_be_loaded_leaves_the_address_free():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"@tcp://127.0.0.1:{found.getsockname()[1]}"
    settings = Settings(model="/no/such/folder", kv_events=address, device="cpu")
    with pytest.raises(AgentCacheError, match="no/such/folder"):
        build_engine(settings)
    deadline = time.monotonic() + 20
    while True:  # the socket is closed behind our back
        try:
            again = open_events(settings)
            break
        except SettingsError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert again is not None
    again.close(0)


def test_an_address_that_is_taken_is_told_in_health_until_it_is_free(folder, tmp_path):
    taken = f"ipc://{tmp_path}/events"
    with live_server(folder, kv_events=taken):
        pass
    with live_server(folder, kv_events=taken) as first:
        with live_server(folder, kv_events=taken, store_optional=True) as second:
            health = second.http.get("/health")
            assert health.status_code == 200 and health.json()["status"] == "degraded"
            component = health.json()["components"]["events"]
            assert component["status"] != "ok" and "another process listens there" in str(component)
            second.complete([1, 2, 3], max_tokens=1)
        assert first.http.get("/health").json()["components"]["events"] == {"status": "ok"}
