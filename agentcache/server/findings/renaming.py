"""Findings in the names that a protocol has for its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def renamed(findings: Sequence[Mapping[str, Any]], name: Callable[[str], str]) -> list[dict[str, Any]]:
    """
    Args:
        name: the protocol's name of a path.
    """
    return [_renamed(finding, name) for finding in findings]


def _renamed(finding: Mapping[str, Any], name: Callable[[str], str]) -> dict[str, Any]:
    path = finding["location"]["path"]
    if path is None:
        return dict(finding)
    ours = name(path)
    advice = finding["help"]
    return {
        **finding,
        "location": {**finding["location"], "path": ours},
        "help": None if advice is None else advice.replace(path, ours),
    }
