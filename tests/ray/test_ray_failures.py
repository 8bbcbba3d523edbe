"""Replicas on Ray that are killed, added, taken away and ended, under load; and ways to deploy them.  Minutes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from chats import CHAT, LONG, said
from real_ray import RunningCluster, command, environment, eventually, head, running, up

from agentcache_sdk import Client

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def lasting(tiny_model, tmp_path_factory) -> Iterator[RunningCluster]:
    log = tmp_path_factory.mktemp("ray") / "up.log"
    flags = ("--replicas", "2", "--ingress-replicas", "2", "--health-check-period-s", "1")
    with up(tiny_model, log, *flags) as running:
        yield running


@pytest.fixture
def cluster(lasting: RunningCluster) -> RunningCluster:
    lasting.await_replicas(2)
    return lasting


class Load:
    """Clients that ask all the time, and remember what they were answered."""

    def __init__(self, url: str, clients: int = 4, tokens: int = 40) -> None:
        self.statuses: list[int] = []
        self.failures: list[str] = []
        self._url = url
        self._tokens = tokens
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(clients)]

    def _ask(self, number: int) -> None:
        turn = 0
        with httpx.Client(base_url=self._url, trust_env=False, timeout=60) as http:
            while not self._stop.is_set():
                turn += 1
                reply = http.post(CHAT, json=said(f"client {number} {LONG} {turn}", max_tokens=self._tokens))
                self.statuses.append(reply.status_code)
                if reply.status_code != 200:
                    self.failures.append(reply.text)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        eventually(lambda: len(self.statuses) > 8)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(90)


def test_a_replica_killed_under_load_costs_nobody_an_answer(cluster):
    victim = sorted(cluster.http.get("/v1/cache").json()["replicas"])[0]
    with Load(cluster.url) as load:
        cluster.kill(victim)
        asked = len(load.statuses)
        eventually(lambda: len(load.statuses) > asked + 40)
        cluster.await_replicas(2)
    assert set(load.statuses) == {200}, load.failures[:3]
    assert victim not in cluster.http.get("/v1/cache").json()["replicas"]


def test_a_replica_that_hangs_costs_nobody_an_answer(cluster):
    victim = cluster.processes[sorted(cluster.http.get("/v1/cache").json()["replicas"])[0]]
    with Load(cluster.url) as load:
        os.kill(victim, signal.SIGSTOP)
        try:
            eventually(lambda: cluster.up() == 1)
            with Load(cluster.url) as others:
                eventually(lambda: len(others.statuses) > 40)
        finally:
            os.kill(victim, signal.SIGCONT)
        cluster.await_replicas(2)
    assert set(load.statuses + others.statuses) == {200}, load.failures[:3] + others.failures[:3]


@pytest.mark.parametrize(
    "path, body",
    [
        (CHAT, said(LONG, max_tokens=1400)),
        ("/v1/messages", {"model": "tiny", **said(LONG, max_tokens=1400)}),
        ("/v1/responses", {"model": "tiny", "input": LONG, "max_output_tokens": 1400}),
    ],
)
def test_a_stream_whose_replica_is_killed_ends_in_its_own_words(cluster, path, body):
    lines = []
    with cluster.http.stream("POST", path, json={**body, "stream": True}) as reply:
        for line in reply.iter_lines():
            lines.append(line)
            if len(lines) == 12:
                cluster.kill(cluster.replica(reply))
    text = "\n".join(lines)
    assert "is gone; ask again" in text
    ending = {CHAT: "data: [DONE]", "/v1/messages": "event: error", "/v1/responses": "event: response.failed"}[path]
    assert ending in lines


def test_sessions_go_on_when_their_replica_is_killed_between_turns(cluster):
    with Client(cluster.url) as client:
        sessions = [client.session(system=f"Be brief. {number}") for number in range(6)]
        for session in sessions:
            session.send("one", max_tokens=4)
        victim = sessions[0].id.rpartition("-")[2]
        cluster.kill(victim)
        for session in sessions:
            session.send("two", max_tokens=4)
            told = cluster.http.get(f"/v1/sessions/{session.id}").json()
            assert len(told["turns"]) == 2


def test_a_turn_whose_replica_is_killed_under_it_is_made_once(cluster):
    session = cluster.http.post("/v1/sessions", json={"system": "Be brief."}).json()["id"]
    home = cluster.replica(cluster.http.post(CHAT, json=said("one", session=session)))
    replies: list[httpx.Response] = []

    def turn() -> None:
        replies.append(cluster.http.post(CHAT, json=said("two", session=session, max_tokens=1200)))

    asker = threading.Thread(target=turn)
    asker.start()
    with httpx.Client(base_url=cluster.url, trust_env=False, timeout=60) as other:
        eventually(lambda: other.get("/v1/cache").json()["replicas"][home]["running"] == 1)
    cluster.kill(home)
    asker.join(120)
    assert replies[0].status_code == 200 and cluster.replica(replies[0]) != home
    told = cluster.http.get(f"/v1/sessions/{session}?include=messages").json()
    assert len(told["turns"]) == 2
    assert told["messages"][-1]["content"] == replies[0].json()["choices"][0]["message"]["content"]


def test_an_ingress_that_is_killed_comes_back(cluster):
    def ingresses() -> set[int]:
        cluster.note_children()
        return {pid for pid, process in cluster.children.items() if process.is_running() and _is_ingress(process)}

    eventually(lambda: len(ingresses()) == 2)
    victim = ingresses().pop()
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: cluster.http.post(CHAT, json=said("hi")).status_code == 200)
    eventually(lambda: len(ingresses() - {victim}) == 2)
    for _ in range(10):
        assert cluster.http.post(CHAT, json=said("hi")).status_code == 200


def _is_ingress(process: Any) -> bool:
    try:
        return "agentcache:ingress" in " ".join(process.cmdline())
    except Exception:  # noqa: BLE001  it ended meanwhile
        return False


def test_a_flush_reaches_all_replicas(cluster):
    for number in range(8):
        cluster.http.post(CHAT, json=said(f"{number} {LONG}"))
    flushed = cluster.http.post("/v1/cache/flush").json()
    assert flushed["flushed"] > 0 and flushed["free"] == flushed["total"] == 2 * 192


def test_official_clients_need_not_know(cluster, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    oai = openai.OpenAI(base_url=f"{cluster.url}/v1", api_key="none")
    stream = oai.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=4, stream=True
    )
    assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
    first = oai.responses.create(model="tiny", input="hi", max_output_tokens=16)
    second = oai.responses.create(model="tiny", input="more", previous_response_id=first.id, max_output_tokens=16)
    assert oai.responses.retrieve(second.id).previous_response_id == first.id
    claude = anthropic.Anthropic(base_url=cluster.url, api_key="none")
    with claude.messages.stream(model="tiny", max_tokens=8, messages=[{"role": "user", "content": "hi"}]) as messages:
        assert messages.get_final_message().usage.output_tokens == 8


# -- as many as it takes ------------------------------------------------------------------------------------------------


def test_replicas_are_added_under_load_and_taken_away_after_it(tiny_model, tmp_path):
    flags = ("--min-replicas", "1", "--max-replicas", "2", "--target-ongoing-requests", "2")
    delays = ("--upscale-delay-s", "1", "--downscale-delay-s", "3")
    with up(tiny_model, tmp_path / "up.log", *flags, *delays) as cluster:
        assert cluster.up() == 1
        with Load(cluster.url, clients=8, tokens=100) as load:
            eventually(lambda: cluster.up() == 2, 120)
        eventually(lambda: cluster.up() == 1, 120)
        assert cluster.http.post(CHAT, json=said("hi")).status_code == 200
        assert set(load.statuses) == {200}, load.failures[:3]


# -- the end ------------------------------------------------------------------------------------------------------------


def test_a_long_stream_ends_before_the_cluster_does(tiny_model, tmp_path):
    with up(tiny_model, tmp_path / "up.log", "--replicas", "1", "--disk-dir", str(tmp_path / "pages")) as cluster:
        with cluster.http.stream("POST", CHAT, json=said(LONG, max_tokens=1500, stream=True)) as reply:
            lines = reply.iter_lines()
            next(lines)
            cluster.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]" and '"finish_reason":"length"' in rest[-2]
        assert cluster.process.wait(60) == 0
    assert list((tmp_path / "pages" / "replica-0").rglob("*.page")) or any((tmp_path / "pages" / "replica-0").iterdir())


@pytest.mark.parametrize("how", ["SIGTERM to all processes", "Ctrl-C in a terminal"])
def test_a_stream_ends_also_when_all_processes_are_told_to_end(tiny_model, tmp_path, how):
    with up(tiny_model, tmp_path / "up.log", "--replicas", "1", own_session=True) as cluster:
        with cluster.http.stream("POST", CHAT, json=said(LONG, max_tokens=1500, stream=True)) as reply:
            lines = reply.iter_lines()
            next(lines)
            if how == "Ctrl-C in a terminal":
                os.killpg(cluster.process.pid, signal.SIGINT)
            else:
                for process in [*cluster.children.values(), cluster.process]:
                    process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]" and '"finish_reason":"length"' in rest[-2]
        assert cluster.process.wait(60) == 0


@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_it_ends_with_a_sentence_when_a_process_of_rays_own_is_gone(tiny_model, tmp_path, name):
    with up(tiny_model, tmp_path / "up.log", "--replicas", "1") as cluster:
        next(child for child in cluster.children.values() if child.name() == name).kill()
        assert cluster.process.wait(30) == 1
    assert f"Ray's {name} has ended" in (tmp_path / "up.log").read_text("utf-8", "replace")


@pytest.mark.parametrize("how", ["time", "again"])
def test_a_stream_that_takes_too_long_is_cut(tiny_model, tmp_path, how):
    drain = "1" if how == "time" else "600"
    with up(tiny_model, tmp_path / "up.log", "--replicas", "1", "--drain-timeout-s", drain) as cluster:
        with cluster.http.stream("POST", CHAT, json=said(LONG, max_tokens=1900, stream=True, n=8)) as reply:
            lines = reply.iter_lines()
            next(lines)
            cluster.process.send_signal(signal.SIGINT)
            if how == "again":
                time.sleep(1)
                cluster.process.send_signal(signal.SIGINT)
            rest = [line for line in lines if line]
        assert json.loads(rest[-2].removeprefix("data: "))["error"]["code"] == "shutting_down"
        assert cluster.process.wait(60) == 0


# -- ways to deploy -----------------------------------------------------------------------------------------------------


def run_up(*flags: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("up", *flags),
        capture_output=True, text=True, timeout=180, check=False, env=environment(**more),
    )  # fmt: skip


def test_what_is_wrong_is_said_once(tiny_model, tmp_path):
    missing = run_up("--model", str(tmp_path / "nothing"), "--replicas", "2")
    assert missing.returncode == 1 and "no such folder or file" in missing.stderr and "Traceback" not in missing.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        busy = run_up("--model", str(tiny_model), "--port", port)
    assert busy.returncode == 2 and f"--port {port}" in busy.stderr and "Traceback" not in busy.stderr
    open_to_all = run_up("--model", str(tiny_model), "--host", "0.0.0.0")
    assert open_to_all.returncode == 2 and "without a key" in open_to_all.stderr
    proxied = run_up("--model", str(tiny_model), RAY_SERVE_ENABLE_HA_PROXY="1")
    assert proxied.returncode == 2 and "RAY_SERVE_ENABLE_HA_PROXY is set" in proxied.stderr
    nowhere = run_up("--model", str(tiny_model), "--ray-address", "127.0.0.1:1")
    assert nowhere.returncode == 1 and "--ray-address 127.0.0.1:1" in nowhere.stderr
    broken = run_up("--model", str(tiny_model), "--max-model-len", "999999", "--port", "0")
    assert broken.returncode == 1 and "--max-model-len 999999: the model knows 2048 positions" in broken.stderr
    assert "Traceback" not in broken.stderr


def test_an_application_is_deployed_with_rays_own_command(tiny_model, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = f"model: {tiny_model}\n      num_pages: 64\n      device: cpu\n      threads: 1\n      replicas: 1"
    config = tmp_path / "serve.yaml"
    config.write_text(
        f"proxy_location: HeadOnly\nhttp_options:\n  host: 127.0.0.1\n  port: {port}\n"
        "applications:\n  - name: agentcache\n    route_prefix: /\n    import_path: agentcache.ray.app:app\n"
        f"    args:\n      {arguments}\n"
    )
    serve_run = [str(Path(sys.executable).parent / "serve"), "run"]
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as http,
        head(tmp_path / "head.log") as address,
        (tmp_path / "serve.log").open("wb") as out,
        running([*serve_run, f"--address={address}", str(config)], out) as serve,
    ):
        eventually(lambda: http.get("/health").json()["replicas"]["up"] == 1, 120)
        assert http.post(CHAT, json=said("hi")).status_code == 200
        serve.send_signal(signal.SIGINT)
        serve.wait(90)
