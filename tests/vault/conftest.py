from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from live import drain, live_server
from memory_vault import MemoryVault
from session_calls import HttpCalls
from tiny_folder import write_tiny_folder
from valkey_server import Valkey

Serve = Callable[..., AbstractContextManager[HttpCalls]]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_folder(folder)
    return folder


@pytest.fixture
def vault() -> MemoryVault:
    return MemoryVault()


@pytest.fixture(scope="module")
def serve(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """``with serve("r0", vault) as member``: a named server, at whose end nothing may have leaked."""

    @contextmanager
    def start(name: str | None, vault: Any, **settings: Any) -> Iterator[HttpCalls]:
        folder = settings.pop("folder", tiny)
        home = tmp_path_factory.mktemp("home")
        with live_server(folder, vault=vault, replica=name, **{"num_pages": 256, "home": home, **settings}) as server:
            yield HttpCalls(server.http)
            drain(server)

    return start


@pytest.fixture(scope="module")
def common() -> MemoryVault:
    return MemoryVault()


@pytest.fixture(scope="module")
def pair(serve: Serve, common: MemoryVault) -> Iterator[tuple[HttpCalls, HttpCalls]]:
    """Two servers over ``common``, for a module's tests."""
    with serve("r0", common) as first, serve("r1", common) as second:
        yield first, second


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    with Valkey() as server:
        yield server


@pytest.fixture(params=["redis", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty store."""
    if request.param == "file":
        return f"file://{tmp_path}/store?size=64MiB"
    server: Valkey = request.getfixturevalue("valkey")
    with server.client() as client:
        client.flushall()
    return server.url
