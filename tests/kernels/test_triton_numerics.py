"""The Triton kernels against their twins, in a process in which Triton interprets (or on a GPU, if there is one)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CHECKS = sorted(Path(__file__).with_name("interpreted").glob("check_*.py"))
ROOT = Path(__file__).parents[2]


def run(marker: str, *files: Path) -> None:
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if not torch.cuda.is_available():
        env["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-m", "pytest", "-m", marker, "--timeout", "0", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-2000:]


@pytest.mark.timeout(1200)
def test_the_kernels_equal_their_twins_on_a_part_of_the_grid() -> None:
    assert len(CHECKS) == 6
    run("not kernels", *CHECKS)


@pytest.mark.kernels
@pytest.mark.timeout(7200)
def test_the_kernels_equal_their_twins_on_the_whole_grid() -> None:
    run("kernels", *CHECKS)
