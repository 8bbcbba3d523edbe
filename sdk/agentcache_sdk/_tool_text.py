"""New tools in words, for servers that hold no sessions: given as ``tools``, they would change how every prompt begins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Message = dict[str, Any]


def announced(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """``messages`` of one turn, in which its user says which tools there are from now on.

    At the beginning of the user's text; behind tool results alone, as a user message of its own.
    """
    if not tools:
        return list(messages)
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    text = f"From now on you can call these functions as well, in the same way as those before:\n{lines}"
    *rest, last = messages
    if last.get("role") != "user":
        return [*messages, {"role": "user", "content": text}]
    return [*rest, {**last, "content": f"{text}\n\n{last['content']}"}]
