"""A small HTTP server that speaks the wire shapes of agentcache, with a real (if naive) prefix cache and faults on demand.

Its tokens are the bytes of the rendered prompt.  It remembers every sequence that it served; what a new prompt has in
common with one of them counts as cached.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from wire_sessions import Held

PAGE = 16


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class WireServer:
    """What tests look at and set.  ``faults`` are taken one per request; a fault that returns True lets it go on."""

    url: str = ""
    requests: list[Seen] = field(default_factory=list)
    faults: deque[Callable[[Handler], bool]] = field(default_factory=deque)
    served: list[bytes] = field(default_factory=list)
    reports: deque[dict[str, Any]] = field(default_factory=deque)
    """Fields that overwrite the ``agentcache`` object of the next replies."""
    replies: deque[dict[str, Any]] = field(default_factory=deque)
    """Assistant messages to use in place of the made-up ones."""
    held: Held | None = None
    """The sessions, of a server that holds some."""
    prompts: list[dict[str, Any]] = field(default_factory=list)
    """Messages and tools of every chat that was answered, a held session's own included."""
    hung_up: threading.Event = field(default_factory=threading.Event)
    """Set when a client closed its connection in the middle of a stream."""
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def chats(self) -> list[dict[str, Any]]:
        return [seen.body for seen in self.requests if seen.path.endswith("completions")]

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """A chat completion or completion, cache accounting included."""
        session = self.held.of(body) if self.held is not None else None
        if session is not None:
            body = session.whole(body)
        chat = "messages" in body
        if chat:
            self.prompts.append({"messages": body["messages"], "tools": body.get("tools")})
        prompt = render(body) if chat else str(body["prompt"]).encode()
        cached = max((common(prompt, old) for old in self.served), default=0)
        cached = min(cached, len(prompt) - 1)
        message = self.replies.popleft() if self.replies else made_up(body, len(self.chats))
        limit = body.get("max_tokens")
        text = message.get("content") or ""
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        if limit is not None and len(text) > limit:
            text, finish = text[:limit], "length"
            message = message | {"content": text}
        reply = render_message(message).removeprefix(b"<assistant>")
        self.served.append(prompt + reply)
        if session is not None:
            figures = {"prompt_tokens": len(prompt), "cached_tokens": cached, "completion_tokens": len(reply)}
            session.commit(body, message, figures)
        miss = {"code": "cold", "at_token": 0, "detail": "nothing like it was served before"}
        report = {
            "page_size": PAGE,
            "prompt_tokens": len(prompt),
            "cached_tokens": cached,
            "cached_pages": cached // PAGE,
            "partial_tokens": cached % PAGE,
            "computed_tokens": len(prompt) - cached + len(reply),
            "preemptions": 0,
            "tiers": {"device": cached, "host": 0, "disk": 0, "store": 0},
            "miss": None if cached else miss,
            "alignment": {
                "static_tokens": 40,
                "tail_tokens": 8,
                "share_points": [{"path": "messages[0]", "token": 40, "tail": 8}],
            },
            "findings": [],
            "source": "template",
        } | (self.reports.popleft() if self.reports else {})
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(reply),
            "total_tokens": len(prompt) + len(reply),
            "prompt_tokens_details": {"cached_tokens": report["cached_tokens"]},
        }
        ids = {"token_ids": list(text.encode())} if body.get("return_token_ids") else {}
        content = {"message": message} if chat else {"text": text}
        return {
            "id": f"chatcmpl-{len(self.requests)}",
            "object": "chat.completion" if chat else "text_completion",
            "created": 1,
            "model": "tiny",
            "choices": [{"index": 0, **content, "finish_reason": finish, **ids}],
            "usage": usage,
            "agentcache": report,
        }


def render(body: dict[str, Any]) -> bytes:
    tools = json.dumps(body.get("tools") or "").encode()
    return tools + b"".join(map(render_message, body["messages"])) + b"<assistant>"


def render_message(message: dict[str, Any]) -> bytes:
    calls = json.dumps(message["tool_calls"]) if message.get("tool_calls") else ""
    return f"<{message['role']}>{message.get('content') or ''}{calls}".encode()


def common(a: bytes, b: bytes) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def made_up(body: dict[str, Any], number: int) -> dict[str, Any]:
    """A call of the first tool when a user message just asked for it, else some words."""
    messages = body.get("messages") or [{"role": "user"}]
    if body.get("tools") and messages[-1]["role"] == "user" and "tool" in messages[-1]["content"]:
        name = body["tools"][0]["function"]["name"]
        call = {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": '{"path": "README.md"}'},
        }
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"role": "assistant", "content": f"Réply nümber {number}, of five words."}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wire: WireServer
    body: Any

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.handle_one_call()

    def do_DELETE(self) -> None:
        self.handle_one_call()

    def do_POST(self) -> None:
        self.handle_one_call()

    def handle_one_call(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.body = json.loads(raw) if raw else None
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.wire.requests.append(Seen(self.command, self.path, headers, self.body))
        if self.wire.faults and not self.wire.faults.popleft()(self):
            return
        if self.path.endswith("/completions"):
            self.complete()
        else:
            self.plain()

    def plain(self) -> None:
        answers: dict[str, Any] = {
            "/v1/models": {"object": "list", "data": [{"id": "tiny", "max_model_len": 2048, "page_size": PAGE}]},
            "/health": {"status": "ok"},
            "/version": {"version": "0.1.0"},
            "/v1/cache": {"page_size": PAGE, "total": 64, "free": 60, "live": 0, "cached": 4, "pinned": 0},
            "/v1/cache/flush": {"flushed": len(self.wire.served)},
        }
        if self.path == "/v1/cache/flush":
            self.wire.served.clear()
        if self.path == "/tokenize":
            text = self.body["prompt"].encode() if "prompt" in self.body else render(self.body)
            answers[self.path] = {"tokens": list(text), "count": len(text), "max_model_len": 2048}
        if self.path == "/detokenize":
            answers[self.path] = {"prompt": bytes(self.body["tokens"]).decode()}
        if self.wire.held is not None and self.path.startswith("/v1/sessions"):
            self.send_json(*self.wire.held.answer(self.command, self.path, self.body))
        elif self.path in answers:
            self.send_json(200, answers[self.path])
        else:
            self.send_json(404, {"error": {"message": f"no route {self.path}", "code": "not_found"}})

    def complete(self) -> None:
        if self.wire.held is not None and (refusal := self.wire.held.refusal(self.body)):
            self.send_json(*refusal)
            return
        answer = self.wire.answer(self.body)
        if not self.body.get("stream"):
            self.send_json(200, answer)
            return
        self.begin_stream()
        for chunk in chunks(answer, (self.body.get("stream_options") or {}).get("include_usage", False)):
            self.send_event(chunk)
        self.write(b"data: [DONE]\n\n")
        self.end_stream()

    def send_json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for key, value in {"content-type": "application/json", "x-request-id": "req-7", **(headers or {})}.items():
            self.send_header(key, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def send_event(self, data: Any) -> None:
        self.write(b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n")

    def write(self, piece: bytes) -> None:
        try:
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()
        except OSError:
            self.wire.hung_up.set()
            raise

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def reset(self) -> None:
        """Drop the connection as a crashed process does."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()
        self.close_connection = True


def chunks(answer: dict[str, Any], include_usage: bool) -> Iterator[dict[str, Any]]:
    """A whole answer as the chunks of a stream: text in pieces of three characters, tool arguments in halves."""
    envelope = {key: answer[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = answer["choices"][0]
    if "text" in choice:
        for half in (choice["text"][:7], choice["text"][7:]):
            yield {**envelope, "object": "text_completion", "choices": [{"index": 0, "text": half}]}
        ending = [{"index": 0, "text": "", "finish_reason": choice["finish_reason"]}]
        yield {**envelope, "choices": ending, "usage": answer["usage"], "agentcache": answer["agentcache"]}
        return
    message = choice["message"]

    def chunk(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {**envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": None, **more}]}

    yield chunk({"role": "assistant", "content": ""})
    text = message.get("content") or ""
    for start in range(0, len(text), 3):
        piece = text[start : start + 3]
        yield chunk({"content": piece}, **({"token_ids": list(piece.encode())} if "token_ids" in choice else {}))
    for index, call in enumerate(message.get("tool_calls") or []):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        head = {"index": index, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [head]})
        for half in (arguments[:9], arguments[9:]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
    last = chunk({}, finish_reason=choice["finish_reason"])
    if not include_usage:
        yield {**last, "agentcache": answer["agentcache"]}
        return
    yield last
    yield {**envelope, "choices": [], "usage": answer["usage"], "agentcache": answer["agentcache"]}


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is part of the tests, not an error of theirs."""


@contextmanager
def wire_server() -> Iterator[WireServer]:
    wire = WireServer()
    handler = type("BoundHandler", (Handler,), {"wire": wire})
    listener = Listener(("127.0.0.1", 0), handler)
    wire.url = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield wire
    finally:
        wire.over.set()
        listener.shutdown()
        listener.server_close()
        thread.join(5)


# Faults


def error(status: int, code: str | None = None, message: str = "no", **headers: str) -> Callable[[Handler], bool]:
    def fault(handler: Handler) -> bool:
        names = {key.replace("_", "-"): value for key, value in headers.items()}
        handler.send_json(status, {"error": {"message": message, "type": "t", "param": "p", "code": code}}, names)
        return False

    return fault


def raw(status: int, content: bytes) -> Callable[[Handler], bool]:
    def fault(handler: Handler) -> bool:
        handler.send_json(status, content)
        return False

    return fault


def drop(handler: Handler) -> bool:
    """Take the request, then die without an answer."""
    handler.reset()
    return False


def commit_then_drop(handler: Handler) -> bool:
    """Serve the request in full, then lose the answer."""
    handler.wire.answer(handler.body)
    handler.reset()
    return False


def hang(handler: Handler) -> bool:
    """Take the request and stay silent."""
    handler.wire.over.wait(10)
    handler.reset()
    return False


def stream_then(ending: Callable[[Handler], None], pieces: int = 2) -> Callable[[Handler], bool]:
    """A stream that sends ``pieces`` chunks of text and then does something else than end well."""

    def fault(handler: Handler) -> bool:
        handler.begin_stream()
        for piece in range(pieces):
            delta = {"index": 0, "delta": {"content": f"piece{piece} "}, "finish_reason": None}
            handler.send_event({"id": "x", "choices": [delta]})
        ending(handler)
        return False

    return fault


def silence(handler: Handler) -> None:
    handler.wire.over.wait(10)
    handler.reset()


def end_without_done(handler: Handler) -> None:
    handler.end_stream()


def go_on_until_hung_up(handler: Handler) -> None:
    """Keep sending until the client is gone."""
    while not handler.wire.over.wait(0.005):
        handler.send_event({"id": "x", "choices": [{"index": 0, "delta": {"content": "more "}}]})
