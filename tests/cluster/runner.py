"""``examples/cluster/run.py`` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gateway import ROOT

RUN = ROOT / "examples" / "cluster" / "run.py"


class Run:
    """The runner as a process of its own, and what it printed so far."""

    def __init__(self, file: Path, folder: Path, *options: str, env: dict[str, str] | None = None) -> None:
        self.log = folder / "log"
        command = [sys.executable, str(RUN), str(file), *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env={**os.environ, **(env or {})}
            )

    def lines(self) -> list[str]:
        return [" ".join(line.split()) for line in self.log.read_text("utf-8").splitlines()]

    def wait_for(self, text: str, within_s: float = 30) -> str:
        """The first line that has ``text``, once there is one."""
        deadline = time.monotonic() + within_s
        while True:
            if found := [line for line in self.lines() if text in line]:
                return found[0]
            assert time.monotonic() < deadline, f"no line with {text!r} in {self.lines()}"
            time.sleep(0.02)

    def stop(self, number: signal.Signals = signal.SIGINT, within_s: float = 30) -> int:
        self.process.send_signal(number)
        return self.process.wait(within_s)
