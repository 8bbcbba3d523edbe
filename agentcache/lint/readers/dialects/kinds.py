"""JSON's own words for what was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, Mapping):
        return "an object"
    return "an empty list" if not value else "a list"
