"""Replies in a prompt that came from elsewhere: another server, another model, or this one before it was started anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcache.server.misses import Asked


def foreign_replies(asked: Asked, miss: Mapping[str, Any] | None) -> int:
    """How many earlier replies stand in the part of the prompt that nothing like was seen of, and were not generated here.

    Args:
        miss: as the response says it.
    """
    if miss is None or miss["code"] != "cold" or miss["message_index"] is None:
        return 0
    own = {reply.message for reply in asked.prompt.transcript.replies}
    later = range(miss["message_index"], len(asked.messages))
    return sum(asked.messages[index].get("role") == "assistant" and index not in own for index in later)
