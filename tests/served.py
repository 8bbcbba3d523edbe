"""``agentcache serve`` as a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """On a free port; yields (process, address, lines printed so far)."""
    command = [sys.executable, "-m", "agentcache", "serve", "--model", str(folder), "--device", "cpu", "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [*command, "--threads", "1", "--num-pages", "64", *flags],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        address = re.search(r"http://127\.0\.0\.1:\d+", "".join(lines))
        assert address, "".join(lines) + process.stderr.read()
        yield process, address[0], lines
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
