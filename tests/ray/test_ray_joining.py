"""``agentcache up`` on a Ray cluster that somebody else started: nothing is taken from others, and nothing is left.  Minutes."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from real_ray import command, environment, eventually, head, served

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

TOKEN = "0123456789abcdef" * 3


class Joined:
    """An ``agentcache up`` of one replica."""

    def __init__(self, folder: Path, address: str, log: Path, **more: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self._log = log
        flags = served(folder, 64)
        flags += ["--ray-address", address, "--port", self.url.rpartition(":")[2]]
        with log.open("wb") as out:
            self.process = subprocess.Popen(command("up", *flags), env=environment(**more), stdout=out, stderr=out)

    def said(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def await_up(self) -> None:
        eventually(lambda: "Ctrl-C stops it" in self.said() or self.process.poll() is not None, 120)
        assert self.process.poll() is None, self.said()

    def serves(self) -> bool:
        return httpx.get(f"{self.url}/health", trust_env=False).status_code == 200

    def end(self, how: Any = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(90)


def processes_of_serve() -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if "ray::Serve" in line or "ray::ProxyActor" in line or "ray::VaultRecords" in line:
            found.append(line)
    return found


def test_one_starter_at_a_time_has_the_application_and_leaves_the_cluster_as_it_was(tiny_model, tmp_path):
    with head(tmp_path / "head.log") as address:
        first = Joined(tiny_model, address, tmp_path / "first.log")
        first.await_up()
        second = Joined(tiny_model, address, tmp_path / "second.log")
        assert second.process.wait(120) == 1
        assert "another `agentcache up` serves on this cluster" in second.said() and "Traceback" not in second.said()
        assert first.serves()
        first.end(signal.SIGKILL)
        third = Joined(tiny_model, address, tmp_path / "third.log")
        third.await_up()
        assert third.serves() and "left on this cluster is replaced" in third.said()
        assert third.end() == 0 and "Traceback" not in third.said()
        eventually(lambda: not processes_of_serve())


def test_a_cluster_that_asks_for_a_token_says_so(tiny_model, tmp_path):
    with head(tmp_path / "head.log", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN) as address:
        without = Joined(tiny_model, address, tmp_path / "without.log")
        assert without.process.wait(120) == 1
        assert "asks for a token, and RAY_AUTH_MODE is disabled: set RAY_AUTH_MODE=token" in without.said()
        having = Joined(tiny_model, address, tmp_path / "with.log", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN)
        having.await_up()
        assert having.serves() and having.end(signal.SIGINT) == 0


def test_an_address_where_no_cluster_answers_is_refused(tiny_model, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        joined = Joined(tiny_model, address, tmp_path / "up.log")
        assert joined.process.wait(180) == 1
        assert f"--ray-address {address}" in joined.said() and "Traceback" not in joined.said()
