"""Small checks that blocks, tools and options share: each names the place, what was got and what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcache.dialects.wording import got, refuse, shown

_TTLS = ("5m", "1h")


def check_cache_control(holder: Mapping[str, Any], place: str) -> None:
    """Everything is cached here, so a marker changes nothing; one that is malformed would fail elsewhere.

    Raises:
        RequestError: it is malformed.
    """
    marker = holder.get("cache_control")
    if marker is None:
        return
    at = f"{place}.cache_control" if place else "cache_control"
    if not isinstance(marker, Mapping) or marker.get("type") != "ephemeral":
        raise refuse(at, f'got {shown(marker)}, expected {{"type": "ephemeral"}}')
    if marker.get("ttl") is not None and marker["ttl"] not in _TTLS:
        raise refuse(f"{at}.ttl", f'got {shown(marker["ttl"])}, expected "5m" or "1h"')


def text_of(holder: Mapping[str, Any], key: str, place: str) -> str:
    """
    Raises:
        RequestError: it is no text.
    """
    value = holder.get(key)
    if not isinstance(value, str):
        raise refuse(f"{place}.{key}", f"got {got(value)}, expected text")
    return value
