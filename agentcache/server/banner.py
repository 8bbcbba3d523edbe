"""What is served and where, one fact a line, so that people and scripts can read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from agentcache import __version__
from agentcache.settings import Settings

if TYPE_CHECKING:
    from agentcache.engine.loop import AsyncEngine


def print_banner(engine: AsyncEngine, settings: Settings, address: str) -> None:
    """Of one server, at ``address``."""
    info = engine.info
    facts = {
        "model": info.model_name,
        "address": address,
        "explorer": f"{address}/ui",
        "pages": f"{info.num_pages:,} of {info.page_size} tokens ({info.num_pages * info.page_size:,} tokens)",
        "context": f"{info.max_model_len:,} tokens",
        "device": info.device,
    }
    print_facts(facts | facts_of(settings))


def facts_of(settings: Settings) -> dict[str, str]:
    """Who may use a server, or each of several, and what it shares with others; no secrets."""
    facts = {"keys": _keys(settings)}
    if settings.replica is not None:
        facts["replica"] = settings.replica
    if settings.store is not None:
        from agentcache.store.opening import shown

        facts["store"] = shown(settings.store)
    if settings.kv_events is not None:
        facts["events"] = settings.kv_events
    return facts


def print_facts(facts: Mapping[str, str]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]agentcache[/bold] {__version__}")
    for name, fact in facts.items():
        console.print(f"  [cyan]{name:<8}[/cyan]", end=" ")
        console.print(fact, markup=False)
    console.print("  [dim]Ctrl-C stops it[/dim]")


def _keys(settings: Settings) -> str:
    if not settings.keyed:
        return "none: open to whoever reaches the address"
    seeing = "" if settings.operator_keys() else "; metrics are closed without an --admin-key"
    return f"{len(settings.api_keys)} of clients, {len(settings.admin_keys)} of operators{seeing}"
