"""Requests that no rule complained of, but that reused one with a defect: they say the same and are mended the same way.

::

    request 1   "Ü…"
    request 2   "Ü…" decomposed      explained, mended
    request 3   "Ü…"
    request 4   "Ü…" decomposed      found request 2 as it was, so nothing was lost; now it would be
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentcache.lint.fixes.changes import applied
from agentcache.lint.fixes.plan import Plan, Spot
from agentcache.lint.fixes.repairs import Repair, digest, olds_of

_MOST = 32
_BOM = b"\xef\xbb\xbf"


def spread(plan: Plan, files: Mapping[str, Path], spots: Sequence[Spot]) -> bool:
    """Put repairs of the plan on the records at ``spots`` too, where these hold the very same.

    Returns:
        Whether any was put.

    Raises:
        OSError: a file cannot be read.
    """
    known = list({(repair.changes, repair.olds): repair for repair in plan.repairs()}.values())
    found = False
    for file, path in files.items():
        wanted = {spot.line for spot in spots if spot.file == file}
        for line, value in _values(path, wanted):
            if chain := _chain(value, known):
                plan.put(Spot(file, line), chain)
                found = True
    return found


def _values(path: Path, wanted: set[int]) -> list[tuple[int, Any]]:
    if not wanted:
        return []
    values = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number in wanted:
                try:
                    values.append((number, json.loads(line.removeprefix(_BOM))))
                except (ValueError, RecursionError):
                    continue
    return values


def _chain(value: Any, known: Sequence[Repair]) -> list[Repair]:
    """Repairs that fit ``value``, one after another."""
    chain: list[Repair] = []
    while len(chain) < _MOST:
        repair = next((repair for repair in known if olds_of(value, repair.changes) == repair.olds), None)
        if repair is None:
            break
        chain.append(Repair(repair.defect, repair.changes, repair.olds, digest(value), b"", 0))
        value = applied(value, repair.changes)
    return chain
