from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from live import drain, live_server
from session_calls import Calls, Reference
from tiny_folder import write_tiny_folder

Start = Callable[..., AbstractContextManager[Calls]]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> tuple[Path, Reference]:
    folder = tmp_path_factory.mktemp("tiny")
    return folder, Reference(write_tiny_folder(folder))


@pytest.fixture(scope="session")
def reference(tiny) -> Reference:
    return tiny[1]


@pytest.fixture
def serve(tiny, tmp_path) -> Start:
    """``with serve(num_pages=…) as client``: the tiny model; when the block ends, nothing may have leaked."""

    @contextmanager
    def start(folder: Path = tiny[0], **settings) -> Iterator[Calls]:
        with live_server(folder, **{"num_pages": 256, "home": tmp_path / "home", **settings}) as server:
            yield Calls(server)
            drain(server)

    return start


@pytest.fixture(scope="module")
def client(tiny, tmp_path_factory) -> Iterator[Calls]:
    """One server with room for everything, shared by a module's tests."""
    with live_server(tiny[0], num_pages=512, home=tmp_path_factory.mktemp("home")) as server:
        yield Calls(server)
        drain(server)
