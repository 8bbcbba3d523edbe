"""How much text a JSON value holds."""

from __future__ import annotations

from typing import Any


def characters_in(value: Any) -> int:
    """Characters of all strings in ``value``, and one for everything else; keys are not counted."""
    total, left = 0, [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            left += item.values()
        elif isinstance(item, (list, tuple)):
            left += item
        total += 1
    return total
