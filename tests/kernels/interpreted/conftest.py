"""Checks in this folder run the kernels on a GPU if there is one, and else under Triton's interpreter.

They are not collected by name: ``test_triton_numerics.py`` runs them in a process of their own, since Triton decides when it is
imported whether kernels are interpreted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _kernels_can_run() -> None:
    if os.environ.get("TRITON_INTERPRET") == "1":
        from repaired_interpreter import repair

        repair()
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fresh_memory_holds_nan() -> Iterator[None]:
    # Only to warn: what is wanted is the filling, and the twins may use whatever a GPU has.
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
