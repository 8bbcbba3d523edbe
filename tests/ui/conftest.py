from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from live import LiveServer, live_server
from tiny_folder import write_tiny_folder

Start = Callable[..., AbstractContextManager[LiveServer]]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-ui")
    write_tiny_folder(folder)
    return folder


@pytest.fixture(scope="session")
def serve(tiny_folder) -> Start:
    @contextmanager
    def start(**settings) -> Iterator[LiveServer]:
        with live_server(tiny_folder, **{"page_size": 16, "num_pages": 256, **settings}) as server:
            yield server

    return start
