"""A private ``agentcache serve`` for the time of a ``with`` block, which never outlives it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import httpx
from rich.console import Console
from rich.markup import escape
from rich.status import Status

_STOP_TIMEOUT_S = 15.0


class ServerFailedError(Exception):
    """The server did not start, or went away; the message ends with the last lines of its log."""


class LocalServer:
    """Start a server on a free port, wait until it is healthy, and stop it at the end.

    It runs in an empty folder and with a key of its own, so no ``agentcache.toml`` and no ``AGENTCACHE_API_KEYS`` of
    the user changes what is measured.  Its output goes to ``log``, which is kept when something failed.

    Args:
        options: further options of ``agentcache serve``.
        console: where a line says what the server is doing while it starts.
        timeout_s: how long it may take until it is healthy; the first start converts the model.
    """

    def __init__(self, *options: str, console: Console, timeout_s: float = 900.0) -> None:
        self.api_key = secrets.token_hex(8)
        self.url = ""
        self._options = options
        self._console = console
        self._timeout_s = timeout_s
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self._folder / "server.log"

    def __enter__(self) -> LocalServer:
        self._folder = Path(tempfile.mkdtemp(prefix="agentcache-"))
        try:
            with self._console.status("starting the server") as status:
                self._wait_until_healthy(self._start(), status)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.stop()
        if kind is None or not issubclass(kind, Exception):  # Ctrl-C, also as asyncio passes it on
            shutil.rmtree(self._folder, ignore_errors=True)

    def stop(self) -> None:
        """Ask the server to end, and end it if it does not.  Harmless when it has ended."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Also when Ctrl-C comes a second time while we wait.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def last_log_lines(self, count: int = 20) -> str:
        """The end of the log, with the place where all of it is."""
        lines = self.log.read_text("utf-8", "replace").splitlines() if self.log.is_file() else []
        return "\n".join([*lines[-count:], f"(server log: {self.log})"])

    def _start(self) -> subprocess.Popen[bytes]:
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "agentcache", "serve", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--api-key", self.api_key, *self._options]
        # A signal that came between its start and our knowing of it would leave it behind.
        with self.log.open("wb") as log, held_back(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # In a session of its own, Ctrl-C in the terminal reaches only us, and we stop it in order.
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        return self._process

    def _wait_until_healthy(self, process: subprocess.Popen[bytes], status: Status) -> None:
        started = time.monotonic()
        with httpx.Client(base_url=self.url, headers={"authorization": f"Bearer {self.api_key}"}, timeout=5) as http:
            while not _answers(http):
                waited = time.monotonic() - started
                if process.poll() is not None:
                    raise ServerFailedError(
                        f"the server ended with status {process.returncode}\n{self.last_log_lines()}"
                    )
                if waited > self._timeout_s:
                    raise ServerFailedError(f"the server was not healthy after {waited:.0f} s\n{self.last_log_lines()}")
                status.update(escape(f"starting the server, {waited:.0f} s: {self._last_line()}"))
                time.sleep(0.25)

    def _last_line(self) -> str:
        # A progress bar redraws its line with carriage returns.
        lines = self.log.read_text("utf-8", "replace").replace("\r", "\n").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "loading")[:100]


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the program as Ctrl-C does, so that ``with`` blocks stop what they started."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def held_back(*numbers: signal.Signals) -> Iterator[None]:
    """Signals that come meanwhile are acted on afterwards.  Only the main thread gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda got, _frame: came.append(got)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for got in came:
            signal.raise_signal(got)


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/health").is_success
    except httpx.TransportError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
