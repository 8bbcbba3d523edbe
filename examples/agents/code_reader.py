"""An agent that reads source files through a server and says what it sees, and what every turn costs.

    agentcache serve                                      # in one terminal
    python examples/agents/code_reader.py                 # in another

It has three real tools over a folder (``toolbox.py``).  Which one is called next is decided by ``reading_plan.py``,
because the default model is too small to drive tools; the model comments on every result.  Each turn is sent through
an ``agentcache_sdk`` session, which keeps the beginning of the prompt the same, so the server computes only what is new.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Run as a file, Python puts this folder on its path, not the top of the checkout.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from agentcache_sdk import AgentCacheError, AsyncChatStream, AsyncClient, Turn, tool_schema
from examples.agents.reading_plan import PlannedCall, ReadingPlan
from examples.agents.toolbox import Toolbox, ToolError

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class TurnRow:
    """One turn of an agent: the tool whose result was sent, the whole prompt, the reply, seconds to its first text."""

    agent: str
    number: int
    call: PlannedCall
    messages: tuple[dict[str, Any], ...]
    turn: Turn
    ttft_s: float

    @property
    def prompt_tokens(self) -> int:
        return self.turn.usage.prompt_tokens

    @property
    def cached_tokens(self) -> int:
        return self.turn.usage.cached_tokens

    @property
    def computed_tokens(self) -> int:
        """As the server reports it; a server other than agentcache has no such figure."""
        reported = self.turn.cache.computed_tokens
        return self.prompt_tokens - self.cached_tokens if reported is None else reported


@dataclass(frozen=True)
class CodeReader:
    """One agent.  ``folder`` is where it starts reading, below the toolbox's own; replies have ``max_tokens`` at most."""

    name: str
    toolbox: Toolbox
    folder: str = "."
    max_tokens: int = 32

    def system_prompt(self) -> str:
        """Instructions and the tools as text: the same for every agent with these tools, over 1,000 tokens."""
        tools = "\n".join(json.dumps(tool_schema(tool)["function"]) for tool in self.toolbox.functions())
        written = Path(__file__).with_name("code_reader_prompt.md").read_text("utf-8")
        return written.replace("<tools>", tools).strip()

    async def run(self, client: AsyncClient, turns: int) -> AsyncIterator[TurnRow]:
        """Read for some turns; yields each one when its reply is complete.

        Raises:
            AgentCacheError: the server could not be reached or refused a turn.
        """
        plan = ReadingPlan(self.folder)
        call = plan.first_call()
        async with client.session(system=self.system_prompt()) as session:
            for number in range(1, turns + 1):
                result = self.toolbox.call(call.name, call.arguments)
                # As a user message, because not every chat template knows tool results.
                text = f"{call.question}\n\nResult of {call}:\n{result}"
                turn, ttft = await timed(session.stream(text, max_tokens=self.max_tokens, temperature=0))
                # All but the reply is what was sent.
                yield TurnRow(self.name, number, call, session.messages[:-1], turn, ttft)
                call = plan.next_call(call, result)


async def timed(stream: AsyncChatStream) -> tuple[Turn, float]:
    """Read a stream to its end: the turn, and the seconds from sending it to its first piece of text."""
    sent = time.perf_counter()
    first = None
    async with stream:
        async for _ in stream:
            first = first or time.perf_counter() - sent
        turn = await stream.result()
    return turn, first or time.perf_counter() - sent


def turn_table(title: str, rows: Iterable[TurnRow]) -> Table:
    """One line a turn, the turns of one round together."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.caption = "prompt, cached, computed: in tokens; computed counts those of the reply too"
    table.caption_justify = "left"
    table.add_column("agent", no_wrap=True)
    table.add_column("turn", justify="right", no_wrap=True)
    # The only column that gives way in a narrow terminal.
    table.add_column("tool", max_width=40)
    for heading in ("prompt", "cached", "computed", "first token"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in sorted(rows, key=lambda row: (row.number, row.agent)):
        tool = Text(row.call.label, no_wrap=True, overflow="ellipsis")
        tokens = (f"{row.prompt_tokens:,}", f"{row.cached_tokens:,}", f"{row.computed_tokens:,}")
        table.add_row(row.agent, str(row.number), tool, *tokens, f"{row.ttft_s:.2f} s")
    return table


async def _main(args: argparse.Namespace, console: Console) -> None:
    reader = CodeReader("reader", Toolbox(args.folder), max_tokens=args.max_tokens)
    rows: list[TurnRow] = []
    async with AsyncClient(args.base_url, api_key=args.api_key) as client:
        async for row in reader.run(client, args.turns):
            rows.append(row)
            console.print(f"turn {row.number}  {row.call}", style="bold", markup=False, highlight=False)
            console.print(row.turn.text.strip() + "\n", markup=False, highlight=False)
    console.print(turn_table("What every turn cost", rows))


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, 1 when the server fails, 2 for a bad command line, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description="An agent reads source files and shows what every turn costs.")
    parser.add_argument("--base-url", default="http://127.0.0.1:8100", help="a running server; default: %(default)s")
    parser.add_argument("--api-key", help="key of the server, if it wants one")
    parser.add_argument("--folder", type=Path, default=ROOT, help="what to read; default: this repository")
    parser.add_argument("--turns", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--max-tokens", type=int, default=32, help="length of a reply; default: %(default)s")
    args = parser.parse_args(argv)
    console = Console()
    try:
        asyncio.run(_main(args, console))
    except (AgentCacheError, ToolError, ValueError) as error:
        Console(stderr=True).print(f"code_reader: {error}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
