"""A server for all tests of a file, and both kinds of stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from valkey_server import Valkey

from agentcache.store.base import PageStore
from agentcache.store.opening import open_store


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    with Valkey(maxmemory="256mb", maxmemory_policy="allkeys-lru") as server:
        yield server


@pytest.fixture
def folder_url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/shared/pages?size=64MiB"


@pytest.fixture(params=["redis", "file"])
def url(request: pytest.FixtureRequest, folder_url: str) -> str:
    """Of an empty store."""
    if request.param == "file":
        return folder_url
    server: Valkey = request.getfixturevalue("valkey")
    with server.client() as client:
        client.flushall()
    return server.url


@pytest.fixture
def store(url: str) -> Iterator[PageStore]:
    store = open_store(url, 10)
    yield store
    store.close()
