"""Servers that share a vault, and what their clients do."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import httpx

ROLES = 2  # markers at the end of the tiny vocabulary


def random_ids(length: int, seed: object, vocab: int = 512) -> list[int]:
    return random.Random(f"{length}/{seed}").choices(range(vocab - ROLES), k=length)


def said(reply: dict[str, Any]) -> list[int]:
    return reply["choices"][0]["token_ids"]


def asked(reply: dict[str, Any]) -> list[int]:
    return reply["prompt_token_ids"]


@dataclass
class Member:
    """A client of one server of a fleet."""

    http: httpx.Client
    key: str | None = None

    def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {} if self.key is None else {"authorization": f"Bearer {self.key}"}
        return self.http.request(method, path, json=body, headers=headers)

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        reply = self.request(method, path, body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def refused(self, status: int, method: str, path: str, body: Any = None) -> dict[str, Any]:
        reply = self.request(method, path, body)
        assert reply.status_code == status, (reply.status_code, reply.text)
        return reply.json()["error"]

    def create(self, **body: Any) -> str:
        return self.call("POST", "/v1/sessions", body)["id"]

    def get(self, session: str) -> dict[str, Any]:
        return self.call("GET", f"/v1/sessions/{session}")

    def whole(self, session: str) -> dict[str, Any]:
        return self.call("GET", f"/v1/sessions/{session}?include=messages")

    def do(self, session: str, verb: str, /, **body: Any) -> dict[str, Any]:
        return self.call("POST", f"/v1/sessions/{session}/{verb}", body)

    def fork(self, session: str, /, **body: Any) -> str:
        return self.do(session, "fork", **body)["sessions"][0]["id"]

    def turn(self, session: str, prompt: Any, count: int = 8, **fields: Any) -> dict[str, Any]:
        """Of a raw session."""
        return self.call("POST", "/v1/completions", raw_body(session, prompt, count, **fields))

    def say(self, session: str, text: str, **fields: Any) -> dict[str, Any]:
        """A turn of a chat session."""
        return self.call("POST", "/v1/chat/completions", chat_body(session, text, **fields))

    def events(self, session: str) -> list[str]:
        return [event["event"] for event in self.call("GET", f"/v1/sessions/{session}/explain")["events"]]

    def turns(self, session: str) -> int:
        return len(self.get(session)["turns"])


def raw_body(session: str, prompt: Any, count: int = 8, **fields: Any) -> dict[str, Any]:
    body = {"session": session, "prompt": prompt, "temperature": 0, "max_tokens": count, "return_token_ids": True}
    return body | fields


def chat_body(session: str, text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    body = {"session": session, "messages": messages, "temperature": 0, "max_tokens": 8, "return_token_ids": True}
    return body | fields
