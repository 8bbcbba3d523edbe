"""A reply as a message of a chat."""

from __future__ import annotations

from typing import Any

from agentcache.chat.replies.pieces import ReplyMessage


def message_json(reply: ReplyMessage) -> dict[str, Any]:
    """The ``message`` of a choice, as a client sends it back."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.calls:
        message["content"] = reply.content or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.calls
        ]
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    return message
