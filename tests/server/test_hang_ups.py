"""A client that hangs up frees what it held at once, whatever its request was doing."""

from __future__ import annotations

import random
import re
import socket
import struct
import time

import pytest
from live import drain, live_server, probe, raw_request

TEXT = "/v1/completions"
PROBE = [11, 12, 13, 14, 15]


@pytest.fixture(scope="module")
def cramped(tiny):
    """Two seats and 64 pages; prompts go through in chunks of a page, so that a long one takes a while."""
    with live_server(tiny.folder, page_size=16, num_pages=64, max_running=2, prefill_chunk=16) as running:
        yield running


def steps(server) -> float:
    text = server.http.get("/metrics").text
    return float(re.search(r"^agentcache_steps_total (\S+)$", text, re.MULTILINE)[1])


def idle(pages) -> bool:
    return not (pages["running"] or pages["live"] or pages["waiting"])


def wait_until(server, condition, seconds=1.0):
    deadline = time.monotonic() + seconds
    while not condition(pages := server.pages()):
        assert time.monotonic() < deadline, pages
        time.sleep(0.002)


def hang_up(connection: socket.socket, how: str) -> None:
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half":
        connection.shutdown(socket.SHUT_WR)
    else:
        connection.close()


def read_chunks(connection: socket.socket, count: int) -> None:
    received = b""
    while received.count(b"data: ") < count:
        received += connection.recv(4096)


MOMENTS = ["in the prompt", "in the reply", "not streamed"]


def one_round(server, moment: str, how: str, seed: int) -> None:
    prompt = random.Random(seed).choices(range(512), k=900 if moment == "in the prompt" else 40)
    body = {"prompt": prompt, "max_tokens": 2000, "temperature": 0, "stream": moment != "not streamed"}
    connections = [raw_request(server, TEXT, {**body, "cache_salt": str(i)}) for i in range(2)]
    if moment == "in the reply":
        for connection in connections:
            read_chunks(connection, 3)
    else:
        wait_until(server, lambda pages: pages["running"] > 0)
    for connection in connections:
        hang_up(connection, how)
    began = time.monotonic()
    server.complete([seed % 512, 1, 2], max_tokens=1)
    assert time.monotonic() - began < 1, "a fresh request had to wait"
    wait_until(server, idle)
    before = steps(server)
    time.sleep(0.02)
    assert steps(server) == before, "the engine went on for a client that is gone"
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_hang_up_frees_seats_and_pages(cramped, tiny, moment, how):
    for seed in range(3):
        one_round(cramped, moment, how, seed)
    drain(cramped)
    probe(cramped, PROBE, tiny.greedy(PROBE, 8))


@pytest.mark.long
@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_many_hang_ups_leak_nothing(cramped, tiny, moment, how):
    for seed in range(25):
        one_round(cramped, moment, how, 100 + seed)
    drain(cramped)
    probe(cramped, PROBE, tiny.greedy(PROBE, 8))


def test_a_hang_up_while_waiting_in_the_queue(cramped, tiny):
    body = {"prompt": [7] * 40, "max_tokens": 2000, "stream": True}
    connections = [raw_request(cramped, TEXT, {**body, "cache_salt": str(i)}) for i in range(4)]
    wait_until(cramped, lambda pages: pages["running"] == 2 and pages["waiting"] == 2)
    for connection in connections[2:]:
        connection.close()
    wait_until(cramped, lambda pages: pages["waiting"] == 0)
    assert cramped.pages()["running"] == 2
    for connection in connections[:2]:
        connection.close()
    wait_until(cramped, idle)
    drain(cramped)
