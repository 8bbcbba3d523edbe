"""What ``/health`` says when the server works with a store or an events endpoint."""

from live import live_engine
from stub_engine import StubEngine

from agentcache.server.admin import health_body
from agentcache.settings import Settings


class Neighbour:
    def __init__(self, name: str, trouble: str | None = None) -> None:
        self.name = name
        self.wrong = trouble

    def trouble(self) -> str | None:
        return self.wrong

    def close(self, timeout_s: float) -> None:
        """Nothing is owed."""


def test_an_engine_alone_has_no_components():
    assert health_body(True, "ok", []) == {"status": "ok"}
    assert health_body(False, "why", []) == {"status": "unavailable", "reason": "why"}


def test_each_neighbour_is_a_component():
    body = health_body(True, "ok", [Neighbour("store"), Neighbour("events")])
    fine = {"status": "ok"}
    assert body == {"status": "ok", "components": {"engine": fine, "store": fine, "events": fine}}


def test_a_neighbour_in_trouble_makes_the_server_degraded_and_not_red():
    body = health_body(True, "ok", [Neighbour("store", "it does not answer"), Neighbour("events")])
    assert body["status"] == "degraded" and "reason" not in body
    assert body["components"]["store"] == {"status": "unavailable", "reason": "it does not answer"}
    assert body["components"]["events"] == body["components"]["engine"] == {"status": "ok"}


def test_a_broken_engine_is_red_whatever_its_neighbours_are():
    body = health_body(False, "the last 5 steps failed", [Neighbour("store", "it does not answer")])
    assert body["status"] == "unavailable" and body["reason"] == "the last 5 steps failed"
    assert body["components"]["engine"] == {"status": "unavailable", "reason": "the last 5 steps failed"}


def test_over_http_a_degraded_server_still_answers_200_and_is_green_again_with_its_neighbour():
    engine, store = StubEngine(), Neighbour("store", "it does not answer")
    engine.neighbours.append(store)
    with live_engine(engine, Settings(model="stub")) as stub:
        reply = stub.http.get("/health")
        assert reply.status_code == 200 and reply.json()["status"] == "degraded"
        store.wrong = None
        assert stub.http.get("/health").json()["status"] == "ok"
