"""What the example agents share: a server to talk to, the command line, tools for a weak model, and a trace of a run."""

# Annotations are evaluated here: those of `narrow_tools` are made of values, which become JSON schemas.

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field
from rich.console import Console
from rich.text import Text

from agentcache.errors import AgentCacheError as EngineError
from agentcache_sdk import AgentCacheError, AsyncClient, Client, ToolRun, Turn
from examples.agents.local_server import LocalServer, ServerFailedError, ending_on_signals
from examples.agents.toolbox import Toolbox, ToolError

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 600.0
"""Of silence; the first request on a slow machine may take long."""


def example_parser(description: str, *, max_tokens: int, least: int = 1) -> argparse.ArgumentParser:
    """Flags that all examples have.

    Args:
        max_tokens: default length of a reply.
        least: shortest that makes sense: a tool call that is cut is no call.
    """

    def length(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"got {text!r}, expected at least {least} tokens")
        return int(text)

    parser = argparse.ArgumentParser(description=description)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", help="a running server; without it one is started, and stopped at the end")
    where.add_argument("--local", action="store_true", help="run the engine in this process instead of a server")
    parser.add_argument("--api-key", help="key of the server at --url, if it wants one")
    parser.add_argument("--model", default="smollm2", help="as for agentcache serve; default: %(default)s")
    parser.add_argument("--max-tokens", type=length, default=max_tokens, help="length of a reply; default: %(default)s")
    return parser


def run_example(name: str, work: Callable[[argparse.Namespace, Console], None], args: argparse.Namespace) -> int:
    """Do the work.  Exit status: 0, 1 when something fails, which is said in a sentence, 130 after Ctrl-C."""
    try:
        with ending_on_signals():
            work(args, Console())
    except (AgentCacheError, EngineError, ServerFailedError, ToolError, ValueError) as error:
        Console(stderr=True).print(f"{name}: {error}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        Console(stderr=True).print(f"{name}: stopped")
        return 130
    return 0


@contextmanager
def connected(args: argparse.Namespace, console: Console, **settings: Any) -> Iterator[Client]:
    """A client of the server at ``--url``, or of one that lives as long as the client.

    Args:
        settings: of a server that is started here, such as ``num_pages=128``; the one at ``--url`` has its own.
    """
    if args.local:
        from agentcache import LocalClient

        with LocalClient(args.model, timeout=TIMEOUT_S, **settings) as client:
            yield client
        return
    with _address(args, console, settings) as (url, key), Client(url, api_key=key, timeout=TIMEOUT_S) as client:
        yield client


@asynccontextmanager
async def connected_async(args: argparse.Namespace, console: Console, **settings: Any) -> AsyncIterator[AsyncClient]:
    """The asynchronous twin of ``connected``."""
    if args.local:
        from agentcache import AsyncLocalClient

        async with AsyncLocalClient(args.model, timeout=TIMEOUT_S, **settings) as client:
            yield client
        return
    with _address(args, console, settings) as (url, key):
        async with AsyncClient(url, api_key=key, timeout=TIMEOUT_S) as client:
            yield client


@contextmanager
def _address(
    args: argparse.Namespace, console: Console, settings: dict[str, Any]
) -> Iterator[tuple[str, "str | None"]]:
    """URL and key of a server."""
    if args.url:
        yield args.url, args.api_key
        return
    # The server runs in a folder of its own, where a relative path would not lead anywhere.
    model = str(Path(args.model).resolve()) if Path(args.model).exists() else args.model
    flags = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    with LocalServer("--model", model, *flags, console=console) as server:
        try:
            yield server.url, server.api_key
        except AgentCacheError as error:
            raise ServerFailedError(f"{error} (server log: {server.log})") from error


def named(tool: str) -> dict[str, Any]:
    """Sampling fields that make the model call ``tool``, once, with arguments that fit its schema."""
    return {"tool_choice": {"type": "function", "function": {"name": tool}}, "parallel_tool_calls": False}


def json_reply(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Sampling fields that make the reply an object with all of these properties, and no tool call."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}
    return {"tool_choice": "none", "response_format": wanted}


def largest_files(toolbox: Toolbox, count: int) -> list[str]:
    """Paths of the largest text files below the toolbox's folder.

    Raises:
        ToolError: there are none.
    """
    lines = toolbox.list_files(".", count).splitlines()
    files = [line.rpartition(" (")[0] for line in lines if line.endswith(" lines)")]
    if not files:
        raise ToolError("expected a folder with text files in it, got one without")
    return files


def narrow_tools(toolbox: Toolbox, files: Sequence[str], words: Sequence[str]) -> tuple[Callable[..., str], ...]:
    """The toolbox's tools, with schemas that leave a weak model nothing to invent: these files and words, small numbers.

    A model that is good at calling tools needs none of this: give a session ``toolbox.functions()``.
    """

    def list_files(limit: Annotated[int, Field(description="How many at most.", ge=4, le=12)] = 8) -> str:
        """List the text files with their number of lines, the largest first."""
        return toolbox.list_files(".", limit)

    def search_text(
        word: Annotated[str, Field(description="A word to look for.", json_schema_extra={"enum": list(words)})],
    ) -> str:
        """Find the lines that hold a word: path, line number and the line."""
        return toolbox.search_text(word)

    def read_file(
        path: Annotated[str, Field(description="A file.", json_schema_extra={"enum": list(files)})],
        start: Annotated[int, Field(description="The first line to read.", ge=1, le=99)],
    ) -> str:
        """Read some lines of one text file."""
        return toolbox.read_file(path, start, lines=12)

    return list_files, search_text, read_file


@dataclass
class Trace:
    """Prints a run as it goes: give its methods to ``session.run``."""

    console: Console
    turns: int = 0

    def on_turn(self, turn: Turn) -> None:
        """What the model did, and what the turn cost."""
        self.turns += 1
        tokens = f"sent {turn.usage.prompt_tokens:,}, cached {turn.usage.cached_tokens:,}"
        did = ", ".join(f"{call.name}({shown(call.arguments)})" for call in turn.tool_calls)
        self._line(f"turn {self.turns}", did or "answer", f"   {tokens}")

    def on_result(self, run: ToolRun) -> None:
        """How much a tool returned."""
        first = run.content.split("\n", 1)[0]
        self._line("", f"  {len(run.content):,} characters: {first}", style="dim")

    def _line(self, label: str, text: str, figures: str = "", style: str = "") -> None:
        # A line is a line in every terminal; what is too long for it is the text, not the figures.
        room = max(20, self.console.width - 8 - len(figures))
        middle = Text(text, style=style)
        middle.truncate(room, overflow="ellipsis", pad=bool(figures) and self.console.is_terminal)
        self.console.print(Text.assemble((f"{label:<8}", "bold"), middle, (figures, "cyan")), no_wrap=True)


def shown(arguments: str) -> str:
    """The arguments of a call, without the outer braces."""
    return arguments.strip()[1:-1] if arguments.strip().startswith("{") else arguments


async def all_of(work: Iterable[Awaitable[T]]) -> list[T]:
    """Do it at once.  The first failure is raised when all has ended, so that every branch can be closed by then."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for failed in (one for one in done if isinstance(one, BaseException)):
        raise failed
    return [one for one in done if not isinstance(one, BaseException)]
