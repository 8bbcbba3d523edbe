"""What the SDK itself costs, and what its forks save.

    python bench/sdk.py                     # all three, about two minutes
    python bench/sdk.py turns forks         # without the model

*turns*   a turn through ``session.send`` beside the same bytes through bare httpx, in turns, against a server with the real
          HTTP side, tokenizer, scheduler and cache, on a model that costs nothing; likewise a stateless ``client.chat`` of a
          long history with 20 tools, which the client looks through before it sends it.
*forks*   forking a session of 4,000 tokens over HTTP.
*fan-out* one reading of a text by the default model, forked to k reviewers, beside k requests that know nothing of each
          other, with and without the server's prefix cache.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

# Run as a file, Python puts this folder on its path, not the one above.
sys.path.append(str(Path(__file__).resolve().parents[1]))
import httpx
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from agentcache_sdk import AsyncClient, Client, Session
from bench.report import percentile
from examples.agents.local_server import LocalServer

TEXT = Path(__file__).with_name("system_prompt.md")
PARTS = ("turns", "forks", "fan-out")
SESSION_TOKENS = 4_000
REPLY: dict[str, Any] = {"max_tokens": 4, "temperature": 0}


@contextmanager
def free_server() -> Iterator[str]:
    """The address of a server whose model costs nothing."""
    with tempfile.TemporaryDirectory() as folder:
        script = str(Path(__file__).parent / "http_parts/server.py")
        command = [sys.executable, script, "scheduler", "0", str(Path(folder) / "times.json")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                yield server.stdout.readline().strip()
            finally:
                server.send_signal(signal.SIGTERM)


def text_of(client: Client, tokens: int) -> str:
    """About so many tokens of English and code."""
    words = (TEXT.read_text("utf-8") * (1 + tokens // 1_000)).split(" ")
    share = tokens / client.tokenize(" ".join(words)).count
    return " ".join(words[: round(len(words) * share)])


@dataclass(frozen=True)
class Cost:
    """Milliseconds of one call, by the clock on the wall and by the processor time of this thread."""

    wall: float
    cpu: float


def timed(call: Callable[[], object]) -> Cost:
    wall, cpu = time.perf_counter(), time.thread_time()
    call()
    return Cost(1e3 * (time.perf_counter() - wall), 1e3 * (time.thread_time() - cpu))


def in_turns(first: Callable[[], object], second: Callable[[], object], rounds: int) -> tuple[list[Cost], list[Cost]]:
    """Both once a round, so that what else the machine does hits both alike; the first tenth is left out."""
    gc.collect()
    pairs = [(timed(first), timed(second)) for _ in range(rounds)][rounds // 10 :]
    return [one for one, _ in pairs], [other for _, other in pairs]


def tool_schemas(count: int) -> list[dict[str, Any]]:
    """Tools as agents have them: a paragraph and three parameters each."""
    words = TEXT.read_text("utf-8").split()
    fields = {name: {"type": "string", "description": " ".join(words[:12])} for name in ("path", "pattern", "mode")}
    parameters = {"type": "object", "properties": fields, "required": ["path"]}
    described = [" ".join(words[40 * number :][:40]) for number in range(count)]
    return [
        {"type": "function", "function": {"name": f"tool_{number}", "description": text, "parameters": parameters}}
        for number, text in enumerate(described)
    ]


def turns(rounds: int) -> Table:
    table = Table(title="one call, medians in ms", title_justify="left", box=SIMPLE_HEAD)
    for name in ("", "SDK", "bare httpx", "SDK's own", "p99 of both"):
        table.add_column(name, justify="left" if not name else "right")
    with free_server() as url, Client(url) as client, httpx.Client(base_url=url) as bare:
        for name, (sdk, plain) in {
            f"turn of a session of {SESSION_TOKENS:,} tokens": _session_turn(client, bare, rounds),
            f"client.chat of {SESSION_TOKENS:,} tokens, 20 tools": _chat(client, bare, rounds),
        }.items():
            own = median(a.wall - b.wall for a, b in zip(sdk, plain, strict=True))
            tails = [percentile([cost.wall for cost in costs], 99) or 0.0 for costs in (sdk, plain)]
            medians = [f"{median(cost.wall for cost in costs):.2f}" for costs in (sdk, plain)]
            table.add_row(name, *medians, f"{own:.2f}", f"{tails[0]:.1f}, {tails[1]:.1f}")
            cpu = [median(cost.cpu for cost in costs) for costs in (sdk, plain)]
            table.add_row("  processor time of the client", *(f"{ms:.2f}" for ms in cpu), f"{cpu[0] - cpu[1]:.2f}", "")
    return table


def _session_turn(client: Client, bare: httpx.Client, rounds: int) -> tuple[list[Cost], list[Cost]]:
    """Both sessions are rolled back after every turn, so that none grows."""
    system = text_of(client, SESSION_TOKENS)
    with client.session(system) as session, client.session(system) as twin:
        session.send("Hello.", **REPLY)
        twin.send("Hello.", **REPLY)
        turn = {"session": twin.id, "messages": [{"role": "user", "content": "Go on."}], **REPLY, "if_turns": 1}

        def with_sdk() -> None:
            session.send("Go on.", **REPLY)

        def plain() -> None:
            bare.post("/v1/chat/completions", json=turn).raise_for_status()

        first, second = [], []
        for _ in range(rounds):
            first.append(timed(with_sdk))
            session.rollback(1)
            second.append(timed(plain))
            bare.post(f"/v1/sessions/{twin.id}/rollback", json={"to_turn": 1}).raise_for_status()
    return first[rounds // 10 :], second[rounds // 10 :]


def _chat(client: Client, bare: httpx.Client, rounds: int) -> tuple[list[Cost], list[Cost]]:
    tools = tool_schemas(20)
    messages: list[dict[str, Any]] = [{"role": "system", "content": text_of(client, SESSION_TOKENS // 4)}]
    for number in range(12):
        messages.append({"role": "user", "content": f"Question {number}: {text_of(client, SESSION_TOKENS // 16)}"})
        messages.append({"role": "assistant", "content": "An answer. " * 4})
    messages.append({"role": "user", "content": "Go on."})
    body = {"messages": messages, "tools": tools, **REPLY}

    def plain() -> None:
        bare.post("/v1/chat/completions", json=body).raise_for_status()

    return in_turns(lambda: client.chat(messages, tools=tools, **REPLY), plain, rounds)


def forks(rounds: int) -> Table:
    table = Table(title=f"a session of {SESSION_TOKENS:,} tokens over HTTP, ms", title_justify="left", box=SIMPLE_HEAD)
    for name in ("", "median", "p99"):
        table.add_column(name, justify="left" if not name else "right")
    with free_server() as url, Client(url) as client, client.session(text_of(client, SESSION_TOKENS)) as session:
        session.send("Hello.", **REPLY)
        for count in (1, 4, 16):
            costs = []
            for _ in range(rounds):
                gc.collect()
                made: list[Session] = []
                costs.append(timed(partial(_fork, session, count, made)).wall)
                for fork in made:
                    fork.close()
            tail = percentile(costs, 99) or 0.0
            table.add_row(f"fork({count})", f"{median(costs):.2f}", f"{tail:.2f}")
    return table


def _fork(session: Session, count: int, made: list[Session]) -> None:
    made.extend(session.fork(count))


@dataclass(frozen=True)
class FanOut:
    """``computed``: positions that were really run, of all turns; ``wall``: seconds."""

    computed: int
    wall: float


QUESTIONS = (
    "Is it clear?",
    "Is it correct?",
    "Is it safe?",
    "Is it fast enough?",
    "Is it tested?",
    "Is it documented?",
)


async def forked(client: AsyncClient, text: str, k: int, max_tokens: int) -> FanOut:
    """Read once, then k forks at the same time."""
    began = time.perf_counter()
    async with client.session("You review texts.") as session:
        reading = await session.send(f"Read this:\n{text}", max_tokens=1, temperature=0)
        branches = await session.fork(k)
        asked = (
            branch.send(QUESTIONS[i % len(QUESTIONS)], max_tokens=max_tokens, temperature=0, ignore_eos=True)
            for i, branch in enumerate(branches)
        )
        turns = [reading, *await asyncio.gather(*asked)]
        for branch in branches:
            await branch.close()
    return FanOut(sum(turn.cache.computed_tokens or 0 for turn in turns), time.perf_counter() - began)


async def independent(client: AsyncClient, text: str, k: int, max_tokens: int, shared: bool) -> FanOut:
    """K requests at the same time; ``shared``: they may use each other's pages."""

    async def one(i: int) -> int:
        messages = [
            {"role": "system", "content": "You review texts."},
            {"role": "user", "content": f"Read this:\n{text}\n\n{QUESTIONS[i % len(QUESTIONS)]}"},
        ]
        salt: dict[str, Any] = {} if shared else {"cache_salt": f"{i}"}
        turn = await client.chat(messages, max_tokens=max_tokens, temperature=0, ignore_eos=True, **salt)
        return turn.cache.computed_tokens or 0

    began = time.perf_counter()
    computed = await asyncio.gather(*(one(i) for i in range(k)))
    return FanOut(sum(computed), time.perf_counter() - began)


def fan_out(k: int, tokens: int, max_tokens: int, rounds: int, console: Console) -> Table:
    with LocalServer("--model", "smollm2", console=console) as server:
        with Client(server.url, server.api_key) as client:
            text = text_of(client, tokens)
        found = asyncio.run(_fan_outs(server, text, k, max_tokens, rounds))
    table = Table(
        title=f"k = {k}, a text of {tokens:,} tokens, {max_tokens} tokens a reply",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    for name in ("", "tokens computed", "wall, s", "ratio of tokens", "ratio of wall"):
        table.add_column(name, justify="left" if not name else "right")
    best = found["one reading, forked"]
    for name, one in found.items():
        ratios = f"{one.computed / best.computed:.2f}", f"{one.wall / best.wall:.2f}"
        table.add_row(name, f"{one.computed:,}", f"{one.wall:.2f}", *ratios)
    return table


async def _fan_outs(server: LocalServer, text: str, k: int, max_tokens: int, rounds: int) -> dict[str, FanOut]:
    """Medians of the three ways, one after the other in every round, each from an empty cache."""
    found: dict[str, list[FanOut]] = {}
    async with AsyncClient(server.url, server.api_key, timeout=600) as client:
        for _ in range(rounds):
            ways: dict[str, Callable[[], Awaitable[FanOut]]] = {
                "one reading, forked": partial(forked, client, text, k, max_tokens),
                "k requests, prefix cache on": partial(independent, client, text, k, max_tokens, shared=True),
                "k requests that share nothing": partial(independent, client, text, k, max_tokens, shared=False),
            }
            for name, ask in ways.items():
                await client.flush_cache()
                found.setdefault(name, []).append(await ask())
    return {
        name: FanOut(round(median(one.computed for one in all_of)), median(one.wall for one in all_of))
        for name, all_of in found.items()
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; default: all")
    parser.add_argument("--rounds", type=int, default=200, help="of turns and forks; default: %(default)s")
    parser.add_argument("--k", type=int, default=4, help="reviewers; default: %(default)s")
    parser.add_argument("--text-tokens", type=int, default=1_500, help="of what is reviewed; default: %(default)s")
    parser.add_argument("--max-tokens", type=int, default=32, help="of a review; default: %(default)s")
    args = parser.parse_args(argv)
    if unknown := [part for part in args.parts if part not in PARTS]:
        parser.error(f"got {unknown[0]!r}, expected some of {', '.join(PARTS)}")
    parts = args.parts or PARTS
    console, notes = Console(), Console(stderr=True)
    if "turns" in parts:
        with notes.status("turns"):
            table = turns(args.rounds)
        console.print(table)
    if "forks" in parts:
        with notes.status("forks"):
            table = forks(args.rounds)
        console.print(table)
    if "fan-out" in parts:
        console.print(fan_out(args.k, args.text_tokens, args.max_tokens, 3, notes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
