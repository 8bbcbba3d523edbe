"""Sessions on a real server whose model says one scripted thing after the other, and the tools that it calls."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from saying import Saying

from agentcache_sdk import RunResult, Session

SYSTEM = "You are a careful engineer who reads before writing, and who says little. " * 8


def wanted(*calls: tuple[str, dict[str, Any]]) -> str:
    """What the model says to call functions."""
    texts = (json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls)
    return "\n".join(f"<tool_call>{text}</tool_call>" for text in texts)


@dataclass
class Script:
    """Makes the model say one thing after the other, a turn each."""

    saying: Saying
    lines: list[str]

    def next(self, _: Any = None) -> None:
        self.saying.says(self.lines.pop(0) if self.lines else "Done.")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


def run(session: Session, script: Script, text: str | None = "Go.", **options: Any) -> RunResult:
    script.next()
    return session.run(text, on_turn=script.next, **options)
