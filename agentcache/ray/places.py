"""What replicas on one machine must not share: each gets its own of what the settings name once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from agentcache.errors import SettingsError
from agentcache.kv_events.endpoint import Endpoint, parse_endpoint
from agentcache.settings import Settings

_PORT = re.compile(r"(@?tcp://.*:)(\d+)")
_LAST_PORT = 65535
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
    return settings.model_copy(update={**changes, **_own_endpoints(settings, rank)})


def _numbered(file: Path, rank: int) -> Path:
    """``trace.jsonl`` as ``trace-0.jsonl``."""
    return file.with_name(f"{file.stem}-{rank}{file.suffix}")


def check_ports(settings: Settings, replicas: int) -> None:
    """
    Raises:
        SettingsError: an endpoint is malformed, or there are not that many ports above it.
    """
    for name, given in _own_endpoints(settings, replicas - 1).items():
        port = _PORT.fullmatch(given)
        if port is not None and int(port[2]) > _LAST_PORT:
            flag = f"--{name.replace('_', '-')}"
            raise SettingsError(
                f"{flag} {getattr(settings, name)}: {replicas} replicas would listen at ports up to {port[2]}, and {_LAST_PORT} "
                "is the last one"
            )


def _own_endpoints(settings: Settings, rank: int) -> dict[str, str]:
    """Where the replica listens; what is connected to is the same for all.

    A replica's ports lie behind those of the one before, with the same distance between them::

        --kv-events  --kv-events-replay   rank 0       rank 1       rank 2
        tcp://*:57   tcp://*:58           57 58        59 60        61 62
        tcp://*:57   tcp://*:60           57    60     61    64     65    68

    Raises:
        SettingsError: one of them is malformed.
    """
    listening = [endpoint for endpoint in _endpoints(settings).values() if endpoint.bind]
    ports = [int(port[2]) for endpoint in listening if (port := _PORT.fullmatch(endpoint.given)) is not None]
    stride = max(ports) - min(ports) + 1 if ports else 0
    return {
        name: _moved(endpoint, rank, stride) if endpoint.bind else endpoint.given
        for name, endpoint in _endpoints(settings).items()
    }


def _endpoints(settings: Settings) -> dict[str, Endpoint]:
    """By the setting's name; as servers read them."""
    found = {}
    if settings.kv_events is not None:
        found["kv_events"] = parse_endpoint("--kv-events", settings.kv_events)
    if settings.kv_events_replay is not None:
        found["kv_events_replay"] = parse_endpoint("--kv-events-replay", settings.kv_events_replay, bind=True)
    return found


def _moved(endpoint: Endpoint, rank: int, stride: int) -> str:
    port = _PORT.fullmatch(endpoint.given)
    if port is not None:
        return f"{port[1]}{int(port[2]) + rank * stride}"
    return f"{endpoint.given}-{rank}" if endpoint.transport == "ipc" and rank else endpoint.given
