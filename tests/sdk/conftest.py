"""Fixtures of the SDK's tests: the small wire server and clients for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sdk_wire import WireServer, wire_server

from agentcache_sdk import Client


@pytest.fixture
def wire() -> Iterator[WireServer]:
    with wire_server() as server:
        yield server


@pytest.fixture
def client(wire: WireServer) -> Iterator[Client]:
    with Client(wire.url, timeout=5) as client:
        yield client
