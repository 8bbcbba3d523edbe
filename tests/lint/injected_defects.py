"""Random traffic with one defect in it."""

from __future__ import annotations

from injected_heads import HeadDefects
from injected_histories import HistoryDefects
from injected_traffic import Injected, Traffic

KINDS = {
    **dict.fromkeys(
        (
            "clock",
            "uuid",
            "tmp",
            "counter",
            "environment",
            "personal",
            "documents",
            "key_order",
            "tool_order",
            "set_order",
            "enum_order",
            "white_space",
            "unicode_form",
            "description",
            "tool_set",
        ),
        HeadDefects,
    ),
    **dict.fromkeys(
        (
            "model",
            "salt",
            "adapter",
            "option",
            "response_format",
            "edited",
            "arguments",
            "call_id",
            "escapes",
            "reasoning",
            "dropped",
            "inserted",
        ),
        HistoryDefects,
    ),
}
"""What can be put in."""


def injected(seed: int, kind: str) -> Injected | None:
    """A defect of that kind in traffic of that seed; ``None`` when the traffic has no place for it."""
    found: Injected | None = getattr(KINDS[kind](Traffic(seed), seed + 1), kind)()
    return found
