"""From a scripted reply to what is sent: cut where the request says so, with ids for its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentcache_sdk.testing._chunks import Choice
from agentcache_sdk.testing._rendering import call_text, content_of, reasoning_of, reply_tokens
from agentcache_sdk.testing._tokens import decode, encode
from agentcache_sdk.testing.replies import Reply


def make_choice(index: int, reply: Reply, body: Mapping[str, Any], room: int, new_call: Callable[[], str]) -> Choice:
    """
    Args:
        room: tokens that fit behind the prompt.
        new_call: ids for calls.
    """
    text, stop = _stopped(reply.text, body.get("stop"))
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reply.calls and stop is None:
        message["content"] = text or None
        message["tool_calls"] = [
            {"id": new_call(), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.calls
        ]
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    asked = body.get("max_completion_tokens") or body.get("max_tokens")
    limit = room if asked is None else min(int(asked), room)
    tokens = reply_tokens(message)
    if len(tokens) >= limit:  # the end token would be one too many
        message = _cut(message, limit)
        return Choice(index, message, reply_tokens(message), limit, reply.finish_reason or "length")
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    return Choice(index, message, tokens, len(tokens) + 1, reply.finish_reason or finish, stop)


def _stopped(text: str, stop: Any) -> tuple[str, str | None]:
    """``text`` up to the first of the texts that end a reply, and which one it was."""
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    found = [(text.index(end), end) for end in stops if end in text]
    if not found:
        return text, None
    at, end = min(found)
    return text[:at], end


def _cut(message: dict[str, Any], limit: int) -> dict[str, Any]:
    """The first ``limit`` tokens of a reply; a call that is not whole is no call."""
    kept: dict[str, Any] = {"role": "assistant", "content": ""}
    left = limit
    if reasoning := reasoning_of(message):
        thought = encode(reasoning)
        kept["reasoning_content"] = decode(thought[: max(0, limit - len(encode("<think>")))])
        left -= len(reply_tokens({"reasoning_content": reasoning}))
    if left <= 0:
        return kept
    content = encode(content_of(message))
    kept["content"] = decode(content[:left])
    left -= len(content)
    for call in message.get("tool_calls") or ():
        left -= len(encode(call_text(call)))
        if left >= 0:
            kept.setdefault("tool_calls", []).append(call)
    return kept
