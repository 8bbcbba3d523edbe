"""Pytest puts the folder of this file on the import path, so that tests share the helpers beside it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the cores; before anything imports torch, which reads it then
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # who waits for another thread's share leaves it the core


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For workers: all that needs the real model in one piece, and long pieces first, so that none is last and alone."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    short = []
    for item in items:
        real = "smollm2" in getattr(item, "fixturenames", ())
        if real:
            item.add_marker(pytest.mark.xdist_group("smollm2"))
        if not real and item.get_closest_marker("timeout") is None:
            short.append(item)
    first = set(items) - set(short)
    items[:] = [item for item in items if item in first] + short


def pytest_collection_finish() -> None:
    """What was imported stays: no collection of garbage has to walk through it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist loadgroup`` with whole files, so that no two workers start the server that a file's tests share."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class Files(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return super()._split_scope(nodeid).split("::")[0]

    return Files(config, log)


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
