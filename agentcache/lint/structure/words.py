"""Words for people: lists of names, and the beginnings of values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentcache.chat.messages import Message
from agentcache.lint.parting import excerpt

_SHOWN = 100


def cut(text: str, most: int = _SHOWN) -> str:
    """``text`` on one line, its end cut off when it is long."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def listed(names: Sequence[str], most: int = 6) -> str:
    """``a, b and 3 more``"""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def counted(number: int, noun: str) -> str:
    """``1 message``, ``2 messages``"""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def brief(value: Any) -> str:
    """A value as JSON, or the keys of an object in their order."""
    if isinstance(value, Mapping):
        return cut(f"{{{', '.join(map(str, value))}}}")
    return cut(as_json(value))


def line_of(message: Message) -> str:
    """``user: Why does the build fail?``"""
    calls = [call["function"]["name"] for call in message.get("tool_calls", ())]
    said = message["content"] or (f"calls {listed(calls)}" if calls else "")
    return cut(f"{message['role']}: {said}")


def around(before: str, after: str, char: int) -> tuple[str, str]:
    """Both texts where they part, with a little of what stands beside it."""
    return excerpt(before, char, min(len(before), char + 24)), excerpt(after, char, min(len(after), char + 24))
