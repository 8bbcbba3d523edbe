"""What the HTTP side itself costs: many streams at once on a model that costs nothing, some of them cut by their clients.

    python bench/http_load.py                          # 64 streams at once, 500 requests, 15 % hang up

The server is a process of its own with the real HTTP side, tokenizer and chat template.  Its engine only keeps a pace, or
(``--engine scheduler``) is the real scheduler and cache that rest ``--step-ms`` in place of a forward pass.  A request's
overhead is what it takes beside the engine::

    client sends ──► read, parse, render, tokenise ──► engine ───────────► events ──► client has the last byte
                 [ overhead ........................ ]          [ overhead .......... ]

Both processes read one clock.  Fails (exit status 1) when an answer was an error, or something still runs at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

# Run as a file, Python puts this folder on its path, not the one above.
sys.path.append(str(Path(__file__).resolve().parents[1]))
import httpx
import psutil
from rich.console import Console
from rich.table import Table

from bench.cli import progress_bar
from bench.report import percentile

_SETTLED_S = 2.0
_END = b"\r\n0\r\n\r\n"
"""Of a chunked answer."""
_WARM = 1 / 5
"""Of the requests, the first are left out of the figures: what runs only once is no cost of a request."""


@dataclass(frozen=True)
class Load:
    """``replies``: tokens of a reply, on average; ``turn_words``: words of a message; ``cut``: share that hangs up."""

    requests: int
    streams: int
    cut: float
    replies: int
    turn_words: int


@dataclass(frozen=True)
class Result:
    """Seconds of the machine's monotonic clock."""

    answer: str
    sent: float
    received: float
    cut: bool
    error: str | None


class Client:
    """Sends chat requests over bare sockets, so that what is measured is the server.

    Connections are kept for the next request, as the clients of real agents do; one that hung up has to begin anew.
    """

    def __init__(self, address: str, load: Load) -> None:
        self._host, _, port = address.removeprefix("http://").partition(":")
        self._port = int(port)
        self._load = load
        self._kept: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._words = Path(__file__).with_name("system_prompt.md").read_text("utf-8").split()

    async def ask(self, number: int) -> Result:
        rng = random.Random(number)
        cut_after = rng.randrange(1, self._load.replies // 2) if rng.random() < self._load.cut else None
        request = self._request(rng, self._load.replies // 2 + rng.randrange(self._load.replies))
        if self._kept:
            reader, writer = self._kept.pop()
        else:
            reader, writer = await asyncio.open_connection(self._host, self._port, limit=2**20)
        sent = time.monotonic()
        writer.write(request)
        answer = await self._read(reader, cut_after)
        received = time.monotonic()
        if answer.endswith(_END):
            self._kept.append((reader, writer))
        else:
            writer.close()
        identifier, _, _ = answer.partition(b'","object"')
        name = identifier.rpartition(b"chatcmpl-")[2].decode("ascii", "replace")
        return Result(name, sent, received, cut_after is not None, _error(answer))

    def close(self) -> None:
        for _, writer in self._kept:
            writer.close()
        self._kept.clear()

    async def _read(self, reader: asyncio.StreamReader, cut_after: int | None) -> bytes:
        """Everything up to the end, or up to the event after which this client hangs up."""
        answer = bytearray()
        while not answer.endswith(_END):
            part = await reader.read(2**16)
            answer += part
            if not part or (cut_after is not None and answer.count(b"data: ") > cut_after):
                break
        return bytes(answer)

    def _request(self, rng: random.Random, tokens: int) -> bytes:
        messages = [
            {"role": "system", "content": " ".join(self._words)},
            {"role": "user", "content": " ".join(rng.choices(self._words, k=self._load.turn_words))},
        ]
        body = json.dumps({"messages": messages, "max_tokens": tokens, "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._host}:{self._port}\r\ncontent-type: application/json\r\n"
        return head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body


def _error(answer: bytes) -> str | None:
    if not answer.startswith(b"HTTP/1.1 200"):
        return answer[:200].decode("utf-8", "replace")
    place = answer.find(b'data: {"error"')
    return None if place < 0 else answer[place : place + 200].decode("utf-8", "replace")


async def run(client: Client, load: Load, numbers: range, console: Console) -> list[Result]:
    """``streams`` requests at any time, until all ``numbers`` are answered."""
    todo = iter(numbers)
    results: list[Result] = []
    with progress_bar(console) as progress:
        task = progress.add_task("requests", total=len(numbers))

        async def work(after_s: float) -> None:
            await asyncio.sleep(after_s)  # agents do not come all at once
            for number in todo:
                results.append(await client.ask(number))
                progress.advance(task)

        await asyncio.gather(*(work(i / load.streams) for i in range(load.streams)))
        client.close()
    return results


def overheads(results: list[Result], times: dict[str, tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Milliseconds before and behind the engine, of requests that were read to their end."""
    before, behind = [], []
    for result in results:
        if not result.cut and result.error is None:
            began, ended = times[result.answer]
            before.append(1000 * (began - result.sent))
            behind.append(1000 * (result.received - ended))
    return before, behind


def table(before: list[float], behind: list[float]) -> Table:
    found = Table("milliseconds", "p50", "p90", "p99", "most", title="a request's time beside the engine")
    both = [a + b for a, b in zip(before, behind, strict=True)]
    for name, values in (("up to the engine", before), ("from its end", behind), ("both", both)):
        figures = [percentile(values, percent) or 0.0 for percent in (50, 90, 99, 100)]
        found.add_row(name, *(f"{figure:.2f}" for figure in figures))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--streams", type=int, default=64, help="at once; default: %(default)s")
    parser.add_argument("--cut", type=float, default=0.15, help="share of clients that hang up; default: %(default)s")
    parser.add_argument("--replies", type=int, default=48, help="tokens a reply; default: %(default)s")
    parser.add_argument("--turn-words", type=int, default=100, help="words of a user's message; default: %(default)s")
    parser.add_argument("--step-ms", type=float, default=25, help="between a stream's tokens; default: %(default)s")
    parser.add_argument(
        "--engine", choices=("paced", "scheduler"), default="paced",
        help="paced: each stream at a pace of its own, on no thread; scheduler: the real scheduler and cache, where all "
        "streams get their tokens at once when a step ends; default: %(default)s",
    )  # fmt: skip
    args = parser.parse_args()
    load = Load(args.requests, args.streams, args.cut, args.replies, args.turn_words)
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as folder:
        times_file = Path(folder) / "times.json"
        server_file = str(Path(__file__).parent / "http_parts/server.py")
        command = [sys.executable, server_file, args.engine, str(args.step_ms), str(times_file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                address = server.stdout.readline().strip()
                results, figures = _measure(address, load, psutil.Process(server.pid), console)
            finally:
                server.send_signal(signal.SIGTERM)
        times = json.loads(times_file.read_text("utf-8"))
    errors = [result.error for result in results if result.error is not None]
    Console().print(table(*overheads(results[round(load.requests * _WARM) :], times)))
    line = {
        "requests": len(results),
        "cut": sum(result.cut for result in results),
        "errors": len(errors),
        **figures,
        "error_messages": sorted(set(errors))[:3],
    }
    print(json.dumps(line), flush=True)
    return 1 if errors or figures["still_running"] else 0


def _measure(address: str, load: Load, server: psutil.Process, console: Console) -> tuple[list[Result], dict[str, Any]]:
    """Results; and of the server its memory after each fifth, processor time of the last four, and what still runs then."""
    client = Client(address, load)
    borders = [round(load.requests * fifth / 5) for fifth in range(6)]
    results: list[Result] = []
    memory: list[float] = []
    began = 0.0
    for start, stop in pairwise(borders):
        results += asyncio.run(run(client, load, range(start, stop), console))
        memory.append(round(server.memory_info().rss / 2**20, 1))
        began = began or sum(server.cpu_times()[:2])
    took = sum(server.cpu_times()[:2]) - began
    deadline = time.monotonic() + _SETTLED_S
    while True:
        cache = httpx.get(f"{address}/v1/cache").json()
        busy = cache["running"] + cache["waiting"]
        if not busy or time.monotonic() > deadline:
            cpu_ms = round(1000 * took / (load.requests - borders[1]), 2)
            return results, {"still_running": busy, "rss_mib": memory, "cpu_ms_a_request": cpu_ms}
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
