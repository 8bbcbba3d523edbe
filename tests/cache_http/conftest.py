from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from live import LiveServer, drain, live_server
from reference import Reference
from tiny_folder import write_tiny_folder

Start = Callable[..., AbstractContextManager[LiveServer]]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> tuple[Path, Reference]:
    folder = tmp_path_factory.mktemp("tiny")
    return folder, Reference(write_tiny_folder(folder))


@pytest.fixture
def reference(tiny) -> Reference:
    return tiny[1]


@pytest.fixture
def serve(tiny) -> Start:
    """``with serve(num_pages=…) as server``: the tiny model; when the block ends, nothing may have leaked."""

    @contextmanager
    def start(**settings) -> Iterator[LiveServer]:
        with live_server(tiny[0], **settings) as server:
            yield server
            drain(server)

    return start
