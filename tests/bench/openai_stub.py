"""A small server that speaks the parts of the OpenAI interface that the benchmark uses, and remembers what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REPLY = ("I ", "read ", "it.")


@dataclass
class StubServer:
    """``tokenize``: serve /tokenize (a token is a word).  ``refuse_ignore_eos``: as OpenAI does with unknown fields."""

    tokenize: bool = True
    refuse_ignore_eos: bool = False
    report_cached: bool = True
    fail_turn: int | None = None
    """Answer 500 to conversations of this turn, counted from 0."""
    cut_stream: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def events(self, body: dict[str, Any]) -> Iterator[str]:
        for piece in REPLY:
            yield json.dumps({"choices": [{"index": 0, "delta": {"content": piece}}]})
        if self.cut_stream:
            return
        usage: dict[str, Any] = {"prompt_tokens": 10 * len(body["messages"]), "completion_tokens": len(REPLY)}
        if self.report_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": 5}
        yield json.dumps({"choices": [], "usage": usage})
        yield "[DONE]"


@contextmanager
def serving(stub: StubServer) -> Iterator[StubServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._json(200, {"data": [{"id": "stub-model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path == "/tokenize" and stub.tokenize:
                self._json(200, {"count": len(body["prompt"].split())})
            elif self.path == "/v1/chat/completions":
                self._chat(body)
            else:
                self._json(404, {"error": {"message": "no such route"}})

        def _chat(self, body: dict[str, Any]) -> None:
            stub.requests.append({**body, "authorization": self.headers["authorization"]})
            if stub.refuse_ignore_eos and "ignore_eos" in body:
                self._json(400, {"error": {"message": "Unrecognized request argument supplied: ignore_eos"}})
            elif stub.fail_turn is not None and len(body["messages"]) == 2 + 2 * stub.fail_turn:
                self._json(500, {"error": {"message": "out of pages"}})
            else:
                self.send_response(200)
                self.end_headers()
                for event in stub.events(body):
                    self.wfile.write(f"data: {event}\n\n".encode())
                    self.wfile.flush()

        def _json(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
