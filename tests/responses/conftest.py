from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live import drain, live_server
from response_calls import Responses
from tiny_folder import write_tiny_folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_folder(folder)
    return folder


@pytest.fixture(scope="module")
def api(tiny) -> Iterator[Responses]:
    """One server with room for everything and two keys, shared by a module's tests; nothing may leak."""
    with live_server(tiny, num_pages=1024, api_keys=("mine", "yours"), admin_keys=("root",)) as server:
        yield Responses(server)
        drain(server)
