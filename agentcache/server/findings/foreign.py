"""Replies in a prompt that came from elsewhere: another server, another model, or this one before it was started anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcache.server.findings.said import SaidReplies
from agentcache.server.misses import Asked

_UNSEEN = ("cold", "diverged")


def foreign_replies(asked: Asked, miss: Mapping[str, Any] | None, said: SaidReplies, root: bytes) -> int:
    """How many earlier replies stand in the part of the prompt that was not cached, and were not generated here.

    Short ones, which anybody may say, and bare calls are not counted.

    Args:
        miss: as the response says it.
        said: what was generated here.
        root: namespace of the prompt.
    """
    if miss is None or miss["code"] not in _UNSEEN or miss["message_index"] is None:
        return 0
    own = {reply.message for reply in asked.prompt.transcript.replies}
    later = [index for index in range(miss["message_index"], len(asked.messages)) if index not in own]
    replies = [asked.messages[index] for index in later if asked.messages[index].get("role") == "assistant"]
    texts = [message["content"] for message in replies if isinstance(message.get("content"), str)]
    return sum(said.tells_apart(text) and not said.knows(root, text) for text in texts)
