"""What tests of the command share: two workloads, and ways to run it."""

from __future__ import annotations

import os
import subprocess
import sys

from lint_workloads import INSTRUCTIONS, STAMPS, chat

from agentcache.lint.cli import main

CLEAN = chat(lambda turn: INSTRUCTIONS)
CLOCK = chat(lambda turn: f"It is {STAMPS['second'][turn]}. {INSTRUCTIONS}")


def command(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    run = [sys.executable, "-m", "agentcache", "lint", *arguments]
    return subprocess.run(run, input=stdin, capture_output=True, timeout=120, check=False, env=environment)


def run_main(capsys, *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err
