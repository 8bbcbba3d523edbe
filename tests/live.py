"""Servers for tests: a real uvicorn on a free port, in a thread of this process, and what is asked of it afterwards."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from agentcache.server.app import create_app
from agentcache.server.serve import Server, address_of, listen
from agentcache.settings import Settings


@dataclass(frozen=True)
class LiveServer:
    url: str
    engine: Any
    settings: Settings
    http: httpx.Client
    """A client of ``url``, with the first API key if there are keys."""

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    @property
    def as_operator(self) -> dict[str, str]:
        """Headers of whoever may see the whole server."""
        keys = self.settings.operator_keys()
        return {"authorization": f"Bearer {keys[0]}"} if keys else {}

    def complete(self, prompt: Any, **fields: Any) -> dict[str, Any]:
        """``POST /v1/completions``, greedy unless told otherwise; fails unless it is served."""
        reply = self.http.post("/v1/completions", json={"prompt": prompt, "temperature": 0, **fields})
        assert reply.status_code == 200, reply.text
        return reply.json()

    def chat(self, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """``POST /v1/chat/completions``, greedy unless told otherwise; fails unless it is served."""
        reply = self.http.post("/v1/chat/completions", json={"messages": messages, "temperature": 0, **fields})
        assert reply.status_code == 200, reply.text
        return reply.json()

    def pages(self) -> dict[str, int]:
        return self.http.get("/v1/cache").json()


@contextmanager
def in_a_thread(
    server: uvicorn.Server, listener: socket.socket, begin_s: float = 30, end_s: float = 15
) -> Iterator[None]:
    """``server`` answers at ``listener`` while the block lasts.

    Args:
        begin_s: seconds that its start may take.
        end_s: and its end.
    """
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + begin_s
    while not server.started:
        assert thread.is_alive() and time.monotonic() < deadline, "the server did not start"
        time.sleep(0.005)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=end_s)
        listener.close()
    assert not thread.is_alive(), "the server did not stop"


@contextmanager
def live_engine(engine: Any, settings: Settings, port: int = 0, vault: Any = None) -> Iterator[LiveServer]:
    """Serve ``engine``, which must not be started yet, on a free port unless one is given."""
    listener = listen("127.0.0.1", port)
    server = Server(create_app(engine, settings, vault), settings)
    url = address_of(listener)
    headers = {"authorization": f"Bearer {settings.keys()[0]}"} if settings.keys() else {}
    with in_a_thread(server, listener), httpx.Client(base_url=url, headers=headers, timeout=60) as http:
        yield LiveServer(url, engine, settings, http)


@contextmanager
def live_server(model_folder: Path | str, port: int = 0, vault: Any = None, **settings: Any) -> Iterator[LiveServer]:
    """Load ``model_folder`` on the CPU in float32 and serve it; ``settings`` are fields of ``Settings``.

    With several API keys the operator's is "operator", unless ``admin_keys`` are given.
    """
    from agentcache.engine.build import build_engine

    chosen = {"device": "cpu", "dtype": "float32", "threads": 1, "enable_test_hooks": True, **settings}
    if len(settings.get("api_keys", ())) > 1:
        chosen.setdefault("admin_keys", ("operator",))
    built = Settings(model=str(model_folder), **chosen)
    with live_engine(build_engine(built), built, port, vault) as server:
        yield server


def drain(server: LiveServer) -> None:
    """Nothing runs, waits or leaks within two seconds, every invariant holds, and a flush frees every page."""
    deadline = time.monotonic() + 2
    while True:
        pages = server.pages()
        if not (pages["live"] or pages["running"] or pages["waiting"]):
            break
        assert time.monotonic() < deadline, f"still busy after two seconds: {pages}"
        time.sleep(0.01)
    assert min(value for value in pages.values() if isinstance(value, int)) >= 0, pages
    assert pages["free"] + pages["cached"] + pages["pinned"] == pages["total"], pages
    if server.settings.enable_test_hooks:
        checked = server.http.post("/debug/check", headers=server.as_operator)
        assert checked.status_code == 200, checked.text
    flushed = server.http.post("/v1/cache/flush", headers=server.as_operator).json()
    assert flushed["free"] + flushed["pinned"] == flushed["total"], flushed


def probe(server: LiveServer, prompt: Any, expected: Any, **fields: Any) -> None:
    """A known request still gets its known token ids."""
    reply = server.complete(prompt, max_tokens=8, return_token_ids=True, **fields)
    assert reply["choices"][0]["token_ids"] == expected


def events(reply: httpx.Response) -> list[dict[str, Any]]:
    """JSON of every event of a stream, which must end with ``[DONE]``."""
    lines = [line for line in reply.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines), lines
    assert lines[-1] == "data: [DONE]", lines[-1:]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def stream(server: LiveServer, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Every event of a streamed request."""
    with server.http.stream("POST", path, json={**body, "stream": True}) as reply:
        assert reply.status_code == 200, reply.read()
        assert reply.headers["content-type"].startswith("text/event-stream")
        return events(reply)


def raw_request(server: LiveServer, path: str, body: dict[str, Any]) -> socket.socket:
    """A request sent over a bare socket, for clients that behave badly."""
    payload = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    connection.sendall(head.encode() + payload)
    return connection
