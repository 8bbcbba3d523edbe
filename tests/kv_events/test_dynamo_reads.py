"""The selector of Dynamo, as its wheel has it, reads our servers' events and chooses by them."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from live import LiveServer, live_server
from tiny_folder import VOCAB, write_tiny_folder
from waiting import wait_until

pytestmark = pytest.mark.cluster

PYTHON = Path(__file__).parents[2] / ".venv-others" / "bin" / "python"
SIZE = 16
ANY = "tcp://127.0.0.1:*"


class Selector:
    """Dynamo's selection service in a process of its own."""

    def __init__(self) -> None:
        if not PYTHON.exists():
            pytest.fail(
                f"there is no {PYTHON}: these tests run with `make test-cluster`, which installs Dynamo's wheel there"
            )
        script = Path(__file__).with_name("dynamo_select.py")
        self._process = subprocess.Popen(
            [PYTHON, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, name: str, argument: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, argument]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the selector ended with {self._process.wait(10)}"
        return json.loads(answer)

    def add(self, number: int, server: LiveServer, *, replay: bool) -> None:
        addresses = server.engine.neighbours[0].addresses
        worker = {
            "worker_id": number,
            "model_name": "tiny",
            "endpoint": server.url,
            "block_size": SIZE,
            "max_num_batched_tokens": 512,
            "data_parallel_start_rank": 0,
            "data_parallel_size": 1,
            "kv_events_endpoints": {"0": addresses[0]},
            "replay_endpoint": addresses[1] if replay else None,
        }
        assert self.ask("worker", worker)["lifecycle"] == "schedulable"

    def blocks(self, prompt: list[int], tier: str = "device") -> dict[int, int]:
        """How many blocks of a prompt's beginning each worker has."""
        return {each["worker_id"]: each[f"{tier}_blocks"] for each in self.ask("overlap", prompt)["workers"]}

    def chosen(self, prompt: list[int]) -> int:
        number: int = self.ask("select", prompt)["worker_id"]
        return number

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(20) == 0


@pytest.fixture
def selector() -> Iterator[Selector]:
    found = Selector()
    yield found
    found.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "tiny"
    write_tiny_folder(found)
    return found


@pytest.fixture
def servers(folder: Path, tmp_path: Path) -> Iterator[tuple[LiveServer, LiveServer]]:
    """Two servers of one model; the second writes the older layout, and has lower tiers."""
    events = {"kv_events": ANY, "kv_events_replay": ANY, "num_pages": 64}
    lower = {"host_pages": 4, "disk_dir": tmp_path / "pages", "kv_events_format": "arrays"}
    with ExitStack() as stack:
        first = stack.enter_context(live_server(folder, **events))
        yield first, stack.enter_context(live_server(folder, **events, **lower))


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def prompt(seed: int, length: int = 100) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(VOCAB) for _ in range(length)]


def serve(server: LiveServer, ids: list[int]) -> None:
    server.complete(ids, max_tokens=1)


def test_dynamo_chooses_the_server_that_has_the_beginning_and_follows_evictions(servers, selector):
    first, second = servers
    mine, theirs = prompt(1), prompt(2)
    serve(first, mine)
    serve(second, theirs)
    for number, server in enumerate(servers, 1):
        selector.add(number, server, replay=True)
    # What was published before the selector came is had by replay, once a later batch shows that something is missing.
    for seed in range(100, 200):
        serve(first, prompt(seed, 17))
        serve(second, prompt(seed, 17))
        if selector.blocks(mine) == {1: 6, 2: 0} and selector.blocks(theirs) == {1: 0, 2: 6}:
            break
        time.sleep(0.05)
    assert selector.blocks(mine) == {1: 6, 2: 0}
    assert (selector.chosen(mine), selector.chosen(theirs)) == (1, 2)
    assert (selector.chosen(mine[:70] + prompt(3)), selector.chosen(theirs[:70] + prompt(3))) == (1, 2)

    serve(second, mine[:64])
    wait_until(lambda: selector.blocks(mine) == {1: 6, 2: 4}, 30)
    for seed in range(10, 18):  # too much for 64 pages: what was there before goes
        serve(first, prompt(seed, 200))
    wait_until(lambda: selector.blocks(mine) == {1: 0, 2: 4}, 30)
    assert selector.chosen(mine) == 2


def test_dynamo_counts_what_lower_tiers_have(servers, selector):
    _, second = servers
    ids = prompt(5)
    selector.add(2, second, replay=True)
    for seed in range(200, 300):
        serve(second, prompt(seed, 17))
        if selector.blocks(prompt(seed, 17)) == {2: 1}:
            break
        time.sleep(0.05)
    serve(second, ids)
    wait_until(lambda: selector.blocks(ids) == {2: 6}, 30)
    second.http.post("/v1/cache/flush")
    wait_until(lambda: selector.blocks(ids) == {2: 0}, 30)
    wait_until(lambda: selector.blocks(ids, "disk") == {2: 6}, 30)
    assert selector.blocks(ids, "host_pinned")[2] <= 4
    assert selector.chosen(ids) == 2


@pytest.mark.parametrize("replay", [True, False])
def test_dynamo_forgets_what_a_server_had_that_was_started_anew(folder, selector, replay):
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1], other.getsockname()[1]]
    events = {"kv_events": f"@tcp://127.0.0.1:{ports[0]}", "kv_events_replay": f"tcp://127.0.0.1:{ports[1]}"}
    for life in (1, 2):
        wait_until(lambda: all(is_free(port) for port in ports), 30)  # sockets are closed behind our back
        with live_server(folder, num_pages=512, **events) as server:
            if life == 1:
                selector.add(1, server, replay=replay)
            for seed in range(life * 1000, life * 1000 + 300):
                serve(server, prompt(seed, 17))
                if selector.blocks(prompt(seed, 17)) == {1: 1}:
                    break
                time.sleep(0.05)
            serve(server, prompt(life))
            wait_until(lambda life=life: selector.blocks(prompt(life)) == {1: 6}, 30)
    assert selector.blocks(prompt(1)) == {1: 0}
