"""What the OpenAPI description says is what is served: requests made from it, right and wrong ones, get what it promises."""

from __future__ import annotations

import re

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from live import live_engine
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from stub_engine import StubEngine

from agentcache.settings import Settings

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
EXPLORER = "^/ui/"
"""What the page asks for: it looks into the scheduler, which the engine of these tests does not have."""


@pytest.fixture(scope="module")
def server():
    with live_engine(StubEngine(), Settings(model="stub", enable_test_hooks=True)) as running:
        yield running


def check_every_operation(server, examples: int) -> set[str]:
    """Send ``examples`` requests of each kind to each operation; returns the operations that were asked."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json").exclude(path_regex=EXPLORER)
    asked = set()
    with requests.Session() as session:
        for found in schema.get_all_operations():
            operation = found.ok()
            asked |= send(operation, GenerationMode.POSITIVE, examples, session)
            if operation.body:  # whatever stands in an address is a name of something, and so never of a wrong kind
                asked |= send(operation, GenerationMode.NEGATIVE, examples, session)
    return asked


def send(operation, mode, examples, session) -> set[str]:
    asked = set()

    @settings(
        max_examples=examples, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case):
        asked.add(operation.label)
        case.call_and_validate(checks=CHECKS, session=session, timeout=30)

    run()
    return asked


def test_every_operation_keeps_its_promises(server):
    asked = check_every_operation(server, 3)
    described = server.http.get("/openapi.json").json()["paths"]
    operations = [(method, path) for path, methods in described.items() for method in methods]
    assert asked == {f"{method.upper()} {path}" for method, path in operations if not re.match(EXPLORER, path)}
    assert server.http.get("/health").status_code == 200


@pytest.mark.long
def test_every_operation_keeps_its_promises_to_many(server):
    check_every_operation(server, 60)


def test_main_answers_errors_and_keys_are_described(server):
    description = server.http.get("/openapi.json").json()
    chat = description["paths"]["/v1/chat/completions"]["post"]
    assert {"id", "choices", "usage", "agentcache"} <= {
        *chat["responses"]["200"]["content"]["application/json"]["schema"]["required"]
    }
    assert "text/event-stream" in chat["responses"]["200"]["content"]
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            assert operation["tags"] and operation["summary"], (method, path)
            assert {"200", "4XX", "5XX"} <= operation["responses"].keys() and "422" not in operation["responses"]
    assert description["security"] == [{}, {"bearer": []}, {"x-api-key": []}]
    with live_engine(StubEngine(), Settings(model="stub", api_keys=("one",))) as keyed:
        description = keyed.http.get("/openapi.json").json()
        assert description["security"] == [{"bearer": []}, {"x-api-key": []}]
        assert description["paths"]["/health"]["get"]["security"] == []
