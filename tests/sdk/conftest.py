"""Fixtures of the SDK's tests: the small wire server and clients for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sdk_wire import WireServer, wire_server
from wire_sessions import Held

from agentcache_sdk import Client


@pytest.fixture
def wire() -> Iterator[WireServer]:
    with wire_server() as server:
        yield server


@pytest.fixture(params=[True, False], ids=["held", "stateless"])
def any_wire(request: pytest.FixtureRequest, wire: WireServer) -> WireServer:
    """A server that holds sessions, and one that does not: a session behaves the same on both."""
    wire.held = Held() if request.param else None
    return wire


@pytest.fixture
def client(wire: WireServer) -> Iterator[Client]:
    with Client(wire.url, timeout=5) as client:
        yield client
