"""Pytest puts the folder of this file on the import path, so that tests share the helpers beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many threads torch, and kernels with it, compute on."""
    import torch  # most tests of the core do without

    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def smollm2() -> Iterator[Any]:
    """One server with the default model's real weights, for whoever tests clients (``live.LiveServer``)."""
    from live import live_server

    with live_server("smollm2", num_pages=1536, access_log="off") as server:
        yield server
