"""``agentcache up`` as users start it: a process of its own, and a Ray cluster of its own that ends with it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

_UP = re.compile(r"replica ([a-z0-9]+) is up, process (\d+)")
_PATIENCE_S = 120.0


@dataclass
class RunningCluster:
    """
    Attributes:
        processes: of each replica that was ever up, by its name.
    """

    url: str
    http: httpx.Client
    process: subprocess.Popen[bytes]
    log: Path
    children: dict[int, psutil.Process] = field(default_factory=dict)

    @property
    def processes(self) -> dict[str, int]:
        return {name: int(number) for name, number in _UP.findall(self.log.read_text("utf-8", "replace"))}

    def replica(self, reply: httpx.Response) -> str:
        return reply.headers["x-agentcache-replica"]

    def kill(self, replica: str) -> None:
        os.kill(self.processes[replica], signal.SIGKILL)

    def up(self) -> int:
        return self.http.get("/health").json()["replicas"]["up"]

    def running(self) -> int:
        return self.http.get("/v1/cache").json()["running"]

    def await_replicas(self, number: int) -> None:
        eventually(lambda: self.up() == number, _PATIENCE_S)

    def note_children(self) -> None:
        """Remember what must be gone at the end; Ray's processes are not all children of their starter."""
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self.children[child.pid] = child


def eventually(look: Callable[[], Any], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if look():
                return
        except (httpx.HTTPError, ValueError):  # nobody answers yet, or Ray itself does
            pass
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.05)


def environment(**more: str) -> dict[str, str]:
    left_out = {"http_proxy", "https_proxy", "all_proxy"}
    kept = {name: value for name, value in os.environ.items() if name.lower() not in left_out}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**kept, **threads, "RAY_AUTH_MODE": "disabled", **more}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "agentcache", *arguments]


def served(folder: Path, pages: int) -> list[str]:
    """Flags of replicas of ``folder``, under the name ``tiny``."""
    return [
        "--model", str(folder), "--model-name", "tiny", "--num-pages", str(pages), "--device", "cpu", "--threads", "1",
    ]  # fmt: skip


@contextmanager
def running(command: list[str], out: Any, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process, and all that it started, which ends with the block; ``more`` is added to its environment."""
    process = subprocess.Popen(command, env=environment(**more), stdout=out, stderr=out)
    started: list[psutil.Process] = []
    try:
        yield process
    finally:
        if process.poll() is None:
            started = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            process.wait(60)
        for child in psutil.wait_procs(started, timeout=20)[1]:
            child.kill()


@contextmanager
def head(log: Path, **more: str) -> Iterator[str]:
    """A Ray cluster of one machine that somebody else started; its address.  It must outlive the block."""
    ray = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--num-cpus=4", "--port=0"]
    ray += ["--include-dashboard=false", "--object-store-memory=90000000", "--node-ip-address=127.0.0.1"]
    with log.open("wb") as out, running(ray, out, **more) as process:
        eventually(lambda: "Ray runtime started" in log.read_text("utf-8", "replace"), 120)
        address = re.search(r"--address='([^']+)'", log.read_text("utf-8", "replace"))
        assert address is not None
        yield address[1]
        assert process.poll() is None, "the cluster ended with who joined it"


@contextmanager
def up(folder: Path, log: Path, *flags: str, own_session: bool = False) -> Iterator[RunningCluster]:
    """Replicas of ``folder`` on a free port; at the end it is told to end, and nothing of it may be left.

    Args:
        own_session: as of a terminal or a service; signals to its process group reach nothing else.
    """
    small = ("--object-store-memory", "84MB", "--enable-test-hooks", "--port", "0")
    with log.open("wb") as out:
        process = subprocess.Popen(
            command("up", *served(folder, 192), *small, *flags),
            stdout=out,
            stderr=out,
            env=environment(),
            cwd=log.parent,
            start_new_session=own_session,
        )
    try:
        url = _address(process, log)
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
            cluster = RunningCluster(url, http, process, log)
            cluster.note_children()
            yield cluster
            cluster.note_children()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            finally:
                process.kill()
    left = psutil.wait_procs(list(cluster.children.values()), timeout=20)[1]
    assert not left, f"still there: {left}"


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        text = log.read_text("utf-8", "replace")
        found = re.search(r"address\s+(http://\S+)", text)
        if found and "Ctrl-C stops it" in text:
            return found[1]
        assert process.poll() is None and time.monotonic() < deadline, text
        time.sleep(0.1)
