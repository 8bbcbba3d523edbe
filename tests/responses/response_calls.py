"""What the tests ask of ``/v1/responses``, and the protocol that every stream keeps to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx
from live import LiveServer
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
RESPONSE: TypeAdapter[Any] = TypeAdapter(Response)
ENDS = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True)
class Responses:
    server: LiveServer

    @property
    def http(self) -> httpx.Client:
        return self.server.http

    def post(self, input: Any = "hello", **fields: Any) -> httpx.Response:
        body = {"input": input, "temperature": 0, "max_output_tokens": 8, **fields}
        return self.http.post("/v1/responses", json=body)

    def create(self, input: Any = "hello", **fields: Any) -> dict[str, Any]:
        """Greedy, eight tokens; fails unless it is served."""
        reply = self.post(input, **fields)
        assert reply.status_code == 200, reply.text
        body: dict[str, Any] = reply.json()
        RESPONSE.validate_python(body)
        return body

    def refused(self, status: int, param: str, input: Any = "hello", **fields: Any) -> dict[str, Any]:
        """The error of a request, which is the same whether it is streamed or not."""
        reply, streamed = self.post(input, **fields), self.post(input, **{**fields, "stream": True})
        for answer in (reply, streamed):
            assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text
        error: dict[str, Any] = reply.json()["error"]
        return error

    def stream(self, input: Any = "hello", **fields: Any) -> list[dict[str, Any]]:
        """Events of a stream that keeps to the protocol."""
        body = {"input": input, "temperature": 0, "max_output_tokens": 8, **fields, "stream": True}
        with self.http.stream("POST", "/v1/responses", json=body) as reply:
            assert reply.status_code == 200, reply.read()
            return checked(reply.read().decode())

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        reply = self.http.get(f"/v1/responses/{path}", params=params)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found


def checked(text: str) -> list[dict[str, Any]]:
    """Every event is one of OpenAI's, named alike in both lines, and numbered without gaps; the last one is an end."""
    events = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        head, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert head == f"event: {event['type']}"
        EVENT.validate_python(event)
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event["type"] in ENDS for event in events] == [False] * (len(events) - 1) + [True]
    return events


def text_of(response: dict[str, Any]) -> str:
    parts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(parts)


def lasting(response: dict[str, Any]) -> dict[str, Any]:
    """What two answers to one request have in common: no ids, no times, no figures of the cache."""

    def plain(item: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in item.items() if key not in ("id", "call_id")}

    gone = {"id", "created_at", "completed_at", "agentcache", "usage", "store"}
    kept = {key: value for key, value in response.items() if key not in gone}
    return kept | {"output": [plain(item) for item in response["output"]]}
