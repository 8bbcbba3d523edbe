"""Processes of a cluster for tests: servers with a tiny model, the gateway smg, and a worker that only listens."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from bench.cluster_parts import programs
from bench.cluster_parts.programs import free_port

ROOT = Path(__file__).resolve().parents[2]
SMG = ROOT / ".venv-others" / "bin" / "smg"
STOPPED_S = 20


def poll(condition: Callable[[], Any], what: str, within_s: float = 30) -> Any:
    """What ``condition`` returns, once that is something."""
    deadline = time.monotonic() + within_s
    while True:
        if found := condition():
            return found
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.05)


class Program(programs.Program):
    """A process with a client of its own.

    Args:
        ready: path at ``url`` that answers with 200 once it is ready.
    """

    def __init__(self, name: str, command: list[str], url: str, ready: str, folder: Path) -> None:
        super().__init__(name, command, folder, programs.answers(f"{url}{ready}"))
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=60, trust_env=False)

    def __exit__(self, *about: Any) -> None:
        self.http.close()
        super().__exit__(*about)


class Replica(Program):
    """``agentcache serve`` with a name."""

    def __init__(self, name: str, model: Path, folder: Path, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        command = [
            sys.executable, "-m", "agentcache", "serve", "--model", str(model), "--model-name", "tiny", "--replica", name,
            "--port", str(self.port), "--threads", "1", "--num-pages", "2000", *options,
        ]  # fmt: skip
        super().__init__(f"{name}-{self.port}", command, f"http://127.0.0.1:{self.port}", "/health", folder)


class Gateway(Program):
    """smg in front of ``workers``."""

    def __init__(self, workers: list[str], folder: Path, *options: str) -> None:
        assert SMG.exists(), f"{SMG} is missing: `make test-cluster` installs it"
        port = free_port()
        command = [
            str(SMG), "launch", "--host", "127.0.0.1", "--port", str(port), "--worker-urls", *workers,
            "--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port()),
            "--health-check-interval-secs", "1", "--worker-startup-check-interval", "1",
            "--shutdown-grace-period-secs", "1", *options,
        ]  # fmt: skip
        super().__init__(f"smg-{port}", command, f"http://127.0.0.1:{port}", "/readiness", folder)

    def workers(self) -> list[dict[str, Any]]:
        return list(self.http.get("/workers").json()["workers"])

    def wait_for(self, *urls: str) -> None:
        """Until exactly these are routed to."""
        wanted = sorted(urls)
        poll(lambda: sorted(w["url"] for w in self.workers() if w["is_healthy"]) == wanted, f"workers {wanted}")


class Listener:
    """A worker that answers everything with what it was sent, and with fields that no protocol knows."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                card = {"id": "tiny", "object": "model", "created": 1, "owned_by": "agentcache", "max_model_len": 4096}
                known = {"/health": {"status": "ok"}, "/version": {"version": "1"}, "/v1/models": {"data": [card]}}
                answer = known.get(self.path)
                self._answer(404 if answer is None else 200, answer or {"error": {"message": "no such route"}})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                listener.received.append({"path": self.path, "headers": dict(self.headers), "body": body})
                status = int(body.get("status", 200))
                choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
                usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
                usage["prompt_tokens_details"] = {"cached_tokens": 2}
                fields = {"id": "x", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]}
                self._answer(
                    status, {**fields, "usage": usage, "agentcache": {"cached_tokens": 2, "tiers": {"host": 1}}}
                )

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                payload = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(payload)))
                self.send_header("x-agentcache-replica", "r0")
                self.send_header("retry-after", "7")
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(STOPPED_S)


@contextmanager
def running(*made: Program) -> Iterator[None]:
    """Every one ready; ended at the end, the last one first."""
    with ExitStack() as started:
        for program in made:
            started.enter_context(program)
        for program in made:
            program.wait_ready()
        yield
