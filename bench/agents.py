"""Replay a coding-agent workload against any OpenAI-compatible server and print one JSON line.

    python bench/agents.py --base-url http://127.0.0.1:8100

All agents run at once.  Each sends its whole history every turn: everything before, the model's reply, the next tool
result.  Progress goes to standard error, the JSON line to standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import Progress

# Run as a file, Python puts this folder on its path, not the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.cli import add_workload_options, progress_bar, spec_from
from bench.report import Run, TurnRecord
from bench.workload import Message, TokenCounter, Workload, WorkloadError, build_workload


class ReplayError(Exception):
    """A request that the server did not answer as it should."""


@dataclass
class Target:
    """The server under test.  ``ignore_eos`` turns false once the server refuses the field."""

    http: httpx.AsyncClient
    model: str
    ignore_eos: bool = True


@dataclass
class _Reply:
    """A streamed answer as it grows."""

    sent: float
    text: str = ""
    arrivals: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)

    def take(self, event: dict[str, Any]) -> None:
        now = time.perf_counter()
        if "error" in event:
            raise ReplayError(f"error in the stream: {event['error']}")
        self.usage = event.get("usage") or self.usage
        for choice in event.get("choices") or ():
            if piece := (choice.get("delta") or {}).get("content"):
                self.arrivals.append(now)
                self.text += piece

    def record(self, agent: int, turn: int) -> TurnRecord:
        if not self.arrivals:
            raise ReplayError("the stream ended without any text")
        details = self.usage.get("prompt_tokens_details") or {}
        return TurnRecord(
            agent=agent,
            turn=turn,
            reply=self.text,
            ttft=self.arrivals[0] - self.sent,
            gaps=tuple(b - a for a, b in pairwise(self.arrivals)),
            prompt_tokens=self.usage.get("prompt_tokens"),
            cached_tokens=details.get("cached_tokens"),
            output_tokens=self.usage.get("completion_tokens"),
        )


async def replay(target: Target, workload: Workload, progress: Progress) -> Run:
    """Run every agent at once and measure from the first request to the last reply.  Errors end only their agent."""
    task = progress.add_task("requests", total=workload.spec.agents * workload.spec.turns)
    records: list[TurnRecord] = []
    errors: list[str] = []

    async def run_agent(agent: int) -> None:
        messages = workload.opening(agent)
        for turn in range(workload.spec.turns):
            if turn:
                messages.append(workload.user_message(agent, turn))
            try:
                reply = await _stream(target, messages, workload.spec.output_tokens)
                records.append(reply.record(agent, turn))
            except (ReplayError, httpx.HTTPError) as error:
                errors.append(f"{type(error).__name__}: {error}")
                return
            messages.append({"role": "assistant", "content": reply.text})
            progress.advance(task)

    started = time.perf_counter()
    await asyncio.gather(*(run_agent(agent) for agent in range(workload.spec.agents)))
    wall = time.perf_counter() - started
    return Run(str(target.http.base_url), workload, wall, tuple(records), tuple(errors), target.ignore_eos)


async def _stream(target: Target, messages: list[Message], max_tokens: int) -> _Reply:
    """One greedy chat completion.  A server that does not know ``ignore_eos`` is asked again without it."""
    body: dict[str, Any] = {
        "model": target.model,
        "messages": messages,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if target.ignore_eos:
        body["ignore_eos"] = True
    reply = _Reply(sent=time.perf_counter())
    async with target.http.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.is_success:
            async for event in _events(response):
                reply.take(event)
            return reply
        answer = (await response.aread()).decode("utf-8", "replace")
    if response.status_code in {400, 422} and "ignore_eos" in body and "ignore_eos" in answer:
        target.ignore_eos = False
        return await _stream(target, messages, max_tokens)
    raise ReplayError(f"HTTP {response.status_code}: {answer[:300]}")


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        yield json.loads(data)
    raise ReplayError("the stream ended without data: [DONE]")


def token_counter(http: httpx.Client, model: str) -> TokenCounter | None:
    """Measure text through the server's ``/tokenize``; ``None`` when it has no such route."""

    def count(text: str) -> int:
        body = {"model": model, "prompt": text, "add_special_tokens": False}
        return int(http.post("/tokenize", json=body).raise_for_status().json()["count"])

    try:
        count("one line of text")
    except (httpx.HTTPStatusError, ValueError, KeyError):
        return None
    return count


def _prepare(args: argparse.Namespace, connection: dict[str, Any]) -> tuple[str, Workload]:
    """The model's name and the conversations, before the clock starts."""
    with httpx.Client(**connection) as http:
        model = args.model or str(http.get("/v1/models").raise_for_status().json()["data"][0]["id"])
        if args.workload:
            return model, Workload.load(args.workload)
        return model, build_workload(spec_from(args), token_counter(http, model))


async def _replay(connection: dict[str, Any], model: str, workload: Workload, console: Console) -> Run:
    # Every agent has one request in flight; httpx's default pool would make the 101st wait.
    async with httpx.AsyncClient(**connection, limits=httpx.Limits(max_connections=None)) as http:
        with progress_bar(console) as progress:
            return await replay(Target(http, model), workload, progress)


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, 1 when a request failed, 2 for a bad command line or an unreachable server."""
    parser = argparse.ArgumentParser(description="Replay a coding-agent workload; prints one JSON line.")
    parser.add_argument("--base-url", default="http://127.0.0.1:8100", help="with or without /v1; default: %(default)s")
    parser.add_argument("--model", help="default: the first one that the server lists")
    parser.add_argument("--api-key", help="sent as a bearer token")
    parser.add_argument("--timeout", type=float, default=600, help="seconds a request may take; default: %(default)s")
    parser.add_argument("--records", type=Path, help="write every request with its reply to this file")
    add_workload_options(parser)
    args = parser.parse_args(argv)
    console = Console(stderr=True)
    connection = {
        "base_url": args.base_url.rstrip("/").removesuffix("/v1"),
        "headers": {"authorization": f"Bearer {args.api_key}"} if args.api_key else {},
        "timeout": args.timeout,
    }
    try:
        model, workload = _prepare(args, connection)
        run = asyncio.run(_replay(connection, model, workload, console))
    except (WorkloadError, httpx.HTTPError) as error:
        console.print(f"bench/agents.py: {error}", style="red", markup=False, highlight=False)
        return 2
    return run.print_and_save(args.records)


if __name__ == "__main__":
    sys.exit(main())
