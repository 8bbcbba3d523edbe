"""Sessions as tests speak of them: calls that must succeed, and what Hugging Face says without any cache of ours."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import httpx
from live import LiveServer
from tiny_folder import VOCAB, greedy


def random_ids(length: int, seed: object) -> list[int]:
    """Ids of plain tokens; the two role markers are left out."""
    return random.Random(f"{length}/{seed}").choices(range(VOCAB - 2), k=length)


def cached(reply: dict[str, Any]) -> int:
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def said(reply: dict[str, Any]) -> list[int]:
    return reply["choices"][0]["token_ids"]


def asked(reply: dict[str, Any]) -> list[int]:
    return reply["prompt_token_ids"]


class Reference:
    """Greedy replies by full forward passes, remembered by prompt."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._replies: dict[tuple[int, ...], list[int]] = {}

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        known = self._replies.get(tuple(prompt), [])
        if len(known) < count:
            known = self._replies[tuple(prompt)] = greedy(self.model, [prompt], count)[0]
        return known[:count]


def raw_body(session: str, prompt: Any, count: int = 8, **fields: Any) -> dict[str, Any]:
    """A turn of a raw session."""
    body = {"session": session, "prompt": prompt, "temperature": 0, "max_tokens": count, "return_token_ids": True}
    return body | fields


def chat_body(session: str, text: str, **fields: Any) -> dict[str, Any]:
    """A turn of a chat session."""
    messages = [{"role": "user", "content": text}]
    body = {"session": session, "messages": messages, "temperature": 0, "max_tokens": 8, "return_token_ids": True}
    return body | fields


@dataclass
class HttpCalls:
    """What a client does with a server, wherever it runs."""

    http: httpx.Client
    key: str | None = None

    @property
    def _headers(self) -> dict[str, str]:
        return {} if self.key is None else {"authorization": f"Bearer {self.key}"}

    def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return self.http.request(method, path, json=body, headers=self._headers)

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        reply = self.request(method, path, body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def refused(self, status: int, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The error of a call that must fail."""
        reply = self.request(method, path, body)
        assert reply.status_code == status, reply.text
        return reply.json()["error"]

    def create(self, **body: Any) -> str:
        return self.call("POST", "/v1/sessions", body)["id"]

    def get(self, session: str) -> dict[str, Any]:
        return self.call("GET", f"/v1/sessions/{session}")

    def whole(self, session: str) -> dict[str, Any]:
        """With what was said."""
        return self.call("GET", f"/v1/sessions/{session}?include=messages")

    def turns(self, session: str) -> int:
        return len(self.get(session)["turns"])

    def events(self, session: str) -> list[str]:
        return [event["event"] for event in self.call("GET", f"/v1/sessions/{session}/explain")["events"]]

    def do(self, session: str, verb: str, /, **body: Any) -> dict[str, Any]:
        return self.call("POST", f"/v1/sessions/{session}/{verb}", body)

    def fork(self, session: str, n: int = 1, **body: Any) -> list[str]:
        return [fork["id"] for fork in self.do(session, "fork", n=n, **body)["sessions"]]

    def say(self, session: str, text: str, **fields: Any) -> dict[str, Any]:
        """A turn of a chat session."""
        return self.call("POST", "/v1/chat/completions", chat_body(session, text, **fields))

    def chat(self, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        body = {"messages": messages, "temperature": 0, "max_tokens": 8, "return_token_ids": True, **fields}
        return self.call("POST", "/v1/chat/completions", body)

    def go_on(self, session: str, prompt: Any, count: int = 8, **fields: Any) -> dict[str, Any]:
        """A turn of a raw session."""
        return self.call("POST", "/v1/completions", raw_body(session, prompt, count, **fields))

    def advance(self, seconds: float) -> None:
        self.call("POST", "/debug/clock", {"advance_s": seconds})


class Calls(HttpCalls):
    """What a client does with ``server``, which runs in this process."""

    def __init__(self, server: LiveServer, key: str | None = None) -> None:
        super().__init__(server.http, key)
        self.server = server
