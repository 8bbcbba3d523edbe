"""Fixtures of the SDK's tests: the small wire server and clients for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from sdk_wire import WireServer, wire_server
from wire_sessions import Held

from agentcache_sdk import Client

if TYPE_CHECKING:
    from saying import Saying


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


@pytest.fixture
def held(wire: WireServer) -> Held:
    wire.held = Held()
    return wire.held


@pytest.fixture(scope="module")
def saying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saying]:
    """A real server whose model says what it is told."""
    from saying import saying_server  # here, because it takes a second that the tests of the wire do without

    with saying_server(tmp_path_factory.mktemp("saying")) as server:
        yield server


@pytest.fixture
def scripted_client(saying: Saying) -> Iterator[Client]:
    """A client of it that begins with an empty cache and leaves no session behind."""
    from live import drain

    saying.server.http.post("/v1/cache/flush").raise_for_status()
    with Client(saying.server.url, timeout=20) as client:
        yield client
    for info in saying.server.http.get("/v1/sessions").json()["data"]:
        saying.server.http.delete(f"/v1/sessions/{info['id']}")
    drain(saying.server)
