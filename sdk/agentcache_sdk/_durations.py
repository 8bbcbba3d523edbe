"""Spans of time as people write them."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST_TTL_S = 604_800


def parse_ttl(value: str | float | None) -> float | None:
    """Seconds from ``"30m"``, ``"2h"``, ``90`` or ``None``; between one second and seven days.

    Raises:
        ValueError: no such span, or out of range.
    """
    if value is None:
        return None
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", value)
        if not match:
            raise ValueError(f'ttl: got {value!r}, expected seconds or text such as "90s", "30m", "2h" or "1d"')
        seconds = float(match[1]) * _UNITS[match[2] or "s"]
    else:
        seconds = float(value)
    if not 1 <= seconds <= LONGEST_TTL_S:
        raise ValueError(f"ttl: got {value!r}, expected between 1 second and {LONGEST_TTL_S:,} seconds (7 days)")
    return seconds
