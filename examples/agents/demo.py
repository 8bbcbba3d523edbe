"""Agents that share a system prompt, served with the prefix cache and then without it.

    python examples/agents/demo.py          (or: make demo)

Starts ``agentcache serve`` twice, on a free port each time.  The first pass lets several code readers work at once and
shows what every turn cost.  The second pass sends the very same prompts, just as concurrently, to a server whose cache
is off.  Everything that was started is stopped at the end, whatever happens.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

# Run as a file, Python puts this folder on its path, not the top of the checkout.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from agentcache_sdk import AgentCacheError, AsyncClient
from examples.agents.code_reader import ROOT, CodeReader, TurnRow, timed, turn_table
from examples.agents.local_server import LocalServer, ServerFailedError, ending_on_signals
from examples.agents.toolbox import Toolbox

AgentRun = Callable[[AsyncClient], AsyncIterator[TurnRow]]
"""One agent's turns, one after another."""

FOLDERS = ("agentcache/cache", "agentcache/scheduler", "sdk", "kernels", "agentcache/server", "agentcache/chat")


@dataclass(frozen=True)
class Pass:
    """All turns of one server, and how long they took together (seconds)."""

    rows: tuple[TurnRow, ...]
    wall_s: float

    @property
    def computed_tokens(self) -> int:
        return sum(row.computed_tokens for row in self.rows)

    def median_ttft(self, *, first_turns: bool) -> float:
        """Median time to first token: of the first turn of every agent, or of all later ones."""
        return statistics.median([row.ttft_s for row in self.rows if (row.number == 1) == first_turns] or [0.0])

    def of_agent(self, name: str) -> list[TurnRow]:
        return sorted((row for row in self.rows if row.agent == name), key=lambda row: row.number)


@dataclass(frozen=True)
class Demo:
    """What is shown: ``turns`` turns of every reader against servers started with ``options``."""

    console: Console
    readers: tuple[CodeReader, ...]
    turns: int
    options: tuple[str, ...]

    def run(self) -> None:
        """Both passes and the summary.

        Raises:
            ServerFailedError: a server did not start, or failed a turn.
        """
        title = f"{len(self.readers)} agents at once, one system prompt, cache"
        with_cache = self._serve(f"{title} on", (), [self._reading(reader) for reader in self.readers])
        replays = [self._replaying(reader, with_cache.of_agent(reader.name)) for reader in self.readers]
        without = self._serve(f"{title} off: the same prompts", ("--no-prefix-cache",), replays)
        self.console.print(summary(with_cache, without))
        same = sum(a.turn.text == b.turn.text for a, b in zip(_ordered(with_cache), _ordered(without), strict=True))
        self.console.print(f"{same} of {len(without.rows)} replies are equal with and without the cache.\n")

    def _reading(self, reader: CodeReader) -> AgentRun:
        return lambda client: reader.run(client, self.turns)

    def _replaying(self, reader: CodeReader, recorded: Sequence[TurnRow]) -> AgentRun:
        async def replay(client: AsyncClient) -> AsyncIterator[TurnRow]:
            for row in recorded:
                stream = client.stream_chat(list(row.messages), max_tokens=reader.max_tokens, temperature=0)
                turn, ttft = await timed(stream)
                yield replace(row, turn=turn, ttft_s=ttft)

        return replay

    def _serve(self, title: str, options: Sequence[str], agents: Sequence[AgentRun]) -> Pass:
        with LocalServer(*self.options, *options, console=self.console) as server:
            try:
                return asyncio.run(self._run_agents(title, server, agents))
            except AgentCacheError as error:
                raise ServerFailedError(f"{error}\n{server.last_log_lines()}") from error

    async def _run_agents(self, title: str, server: LocalServer, agents: Sequence[AgentRun]) -> Pass:
        rows: list[TurnRow] = []
        total = len(agents) * self.turns
        async with AsyncClient(server.url, api_key=server.api_key, timeout=600) as client:
            # The first request of a process pays for memory and threads; nobody is compared by it.
            await client.chat([{"role": "user", "content": "Say hello."}], max_tokens=4, temperature=0)
            await client.flush_cache()
            started = time.perf_counter()
            with Live(console=self.console, auto_refresh=False) as live:

                def show() -> None:
                    progress = f" ({len(rows)} of {total} turns)" if len(rows) < total else ""
                    live.update(turn_table(title + progress, rows), refresh=True)

                async def follow(agent: AgentRun) -> None:
                    async for row in agent(client):
                        rows.append(row)
                        show()

                show()
                await asyncio.gather(*(follow(agent) for agent in agents))
                wall = time.perf_counter() - started
        if not self.console.is_terminal:
            self.console.print()  # where nothing can be redrawn, Live leaves the last line open
        return Pass(tuple(rows), wall)


def summary(with_cache: Pass, without: Pass) -> Table:
    """What the cache saved, line by line."""
    table = Table(title="The same turns", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("")
    for heading in ("cache on", "cache off", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    on, off = with_cache.computed_tokens, without.computed_tokens
    table.add_row("tokens computed", f"{on:,}", f"{off:,}", _ratio(off, on))
    for label, first_turns in (("first turns", True), ("later turns", False)):
        a, b = with_cache.median_ttft(first_turns=first_turns), without.median_ttft(first_turns=first_turns)
        table.add_row(f"median time to first token, {label}", f"{a:.2f} s", f"{b:.2f} s", _ratio(b, a))
    table.add_row(
        "all turns", f"{with_cache.wall_s:.1f} s", f"{without.wall_s:.1f} s", _ratio(without.wall_s, with_cache.wall_s)
    )
    return table


def _ratio(larger: float, smaller: float) -> str:
    return f"{larger / smaller:.1f} x" if smaller else "-"


def _ordered(done: Pass) -> list[TurnRow]:
    return sorted(done.rows, key=lambda row: (row.agent, row.number))


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, 1 when a server fails, 2 for a bad command line, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        description="Agents with a shared system prompt, with and without the prefix cache."
    )
    parser.add_argument("--model", default="smollm2", help="as for agentcache serve; default: %(default)s")
    parser.add_argument(
        "--agents", type=int, choices=range(2, len(FOLDERS) + 1), default=3, help="default: %(default)s"
    )
    parser.add_argument("--turns", type=int, default=4, help="turns of every agent; default: %(default)s")
    parser.add_argument("--max-tokens", type=int, default=24, help="length of a reply; default: %(default)s")
    args = parser.parse_args(argv)
    # The servers run in folders of their own, where a relative path would not lead anywhere.
    model = str(Path(args.model).resolve()) if Path(args.model).exists() else args.model
    toolbox = Toolbox(ROOT)
    readers = tuple(
        CodeReader(folder.rpartition("/")[2], toolbox, folder, args.max_tokens) for folder in FOLDERS[: args.agents]
    )
    demo = Demo(Console(), readers, args.turns, ("--model", model))
    try:
        with ending_on_signals():
            demo.run()
    except ServerFailedError as error:
        Console(stderr=True).print(f"demo: {error}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        Console(stderr=True).print("demo: stopped")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
