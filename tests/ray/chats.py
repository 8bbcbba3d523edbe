"""What replicas are asked to say."""

from __future__ import annotations

from typing import Any

CHAT = "/v1/chat/completions"
LONG = "the cache keeps pages of keys and values and the agent sends the same long beginning again and again " * 4


def said(text: str, **fields: Any) -> dict[str, Any]:
    """The body of a request to ``CHAT``."""
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, **fields}
