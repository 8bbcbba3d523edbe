"""What replicas on one machine must not share: each gets its own of what the settings name once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from agentcache.settings import Settings

_PORT = re.compile(r"(tcp://.*:)(\d+)")
SPARE_BODY = 1024
"""Bytes that an ingress may add to a body."""


def own_settings(settings: Settings, name: str, rank: int) -> Settings:
    """``settings`` for one replica.

    Args:
        rank: its number among the replicas on its machine, from 0; one that takes the place of another gets its number,
            and so finds the pages that the other one left on the disk.
    """
    changes: dict[str, Any] = {"replica": name, "max_body": settings.max_body + SPARE_BODY}
    if settings.disk_dir is not None:
        changes["disk_dir"] = settings.disk_dir / f"replica-{rank}"
    if settings.trace is not None:
        changes["trace"] = _numbered(settings.trace, rank)
    for endpoint in ("kv_events", "kv_events_replay"):
        changes[endpoint] = _next_port(getattr(settings, endpoint), rank)
    return settings.model_copy(update=changes)


def _numbered(file: Path, rank: int) -> Path:
    """``trace.jsonl`` as ``trace-0.jsonl``."""
    return file.with_name(f"{file.stem}-{rank}{file.suffix}")


def _next_port(endpoint: str | None, rank: int) -> str | None:
    """An endpoint that is bound has another port for each; one that is connected to is the same for all."""
    match = _PORT.fullmatch(endpoint or "")
    if match is None or "*" not in match[1]:
        return endpoint
    return f"{match[1]}{int(match[2]) + rank}"
