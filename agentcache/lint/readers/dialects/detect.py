"""Which API a body was written for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from agentcache.dialects.wording import refuse, shown

_PATHS = (
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
    ("/responses", "responses"),
    ("/input_tokens", "responses"),
    ("/messages", "anthropic"),
    ("/count_tokens", "anthropic"),
)
_NO_PROMPTS = ("/embeddings", "/moderations", "/rerank", "/images/generations", "/audio/speech")
_CHAT_ROLES = ("tool", "developer", "function")
_BLOCKS = frozenset({"tool_use", "tool_result", "redacted_thinking", "server_tool_use", "document"})
"""Types of content that chat completions do not have."""


def dialect_of(body: Mapping[str, Any], url: str | None, headers: Mapping[str, str] | None) -> str:
    """``chat``, ``responses``, ``anthropic`` or ``completions``; ``chat`` where nothing speaks against it.

    Raises:
        RequestError: it was sent to a route that takes no prompts.
    """
    if (named := _by_path(url)) is not None:
        return named
    if body.get("messages") is None:
        if isinstance(body.get("prompt"), (str, list)):
            return "completions"
        return "responses" if any(body.get(key) is not None for key in ("input", "previous_response_id")) else "chat"
    if any(name.lower() == "anthropic-version" for name in headers or ()) or _is_anthropic(body):
        return "anthropic"
    return "chat"


def _by_path(url: str | None) -> str | None:
    try:
        path = urlsplit(url or "").path.rstrip("/")
    except ValueError:
        return None
    if path.endswith(_NO_PROMPTS):
        raise refuse("url", f"got {shown(path)}, which takes no prompts, expected a chat, a response or a completion")
    return next((name for end, name in _PATHS if path.endswith(end)), None)


def _is_anthropic(body: Mapping[str, Any]) -> bool:
    messages = [message for message in _list(body.get("messages")) if isinstance(message, Mapping)]
    if any(message.get("role") in _CHAT_ROLES or message.get("tool_calls") for message in messages):
        return False
    if any(body.get(key) is not None for key in ("system", "anthropic_version", "stop_sequences")):
        return True
    if any(isinstance(tool, Mapping) and "input_schema" in tool for tool in _list(body.get("tools"))):
        return True
    return any(_is_block(part) for message in messages for part in _parts(message))


def _is_block(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    if kind in ("image", "thinking"):
        return isinstance(part.get("source"), Mapping) or isinstance(part.get("thinking"), str)
    return isinstance(kind, str) and kind in _BLOCKS


def _parts(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (part for part in _list(message.get("content")) if isinstance(part, Mapping))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
