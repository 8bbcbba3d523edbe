"""For templates that insist on turns: messages of one role side by side become one.

::

    system   user   system   user   assistant            messages
    system   user ................  assistant            system=True: what the system says later is the user's
    user .........................  assistant            system=False: it may not speak at all
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentcache.chat.messages import Message

_BETWEEN = "\n\n"


class Share(NamedTuple):
    """A message (its number) that a turn was joined of, and where its content begins in the turn's; ``None`` of empty
    content."""

    message: int
    start: int | None


class Turn(NamedTuple):
    message: Message
    shares: tuple[Share, ...]


def in_turns(messages: Sequence[Message], *, system: bool) -> list[Turn]:
    """
    Args:
        messages: whose content is text.
        system: whether the system may speak at the beginning.
    """
    turns: list[Turn] = []
    for index, message in enumerate(messages):
        if message["role"] == "system" and (turns or not system):
            message = {**message, "role": "user"}
        share = Share(index, 0 if message["content"] else None)
        before = turns[-1] if turns else None
        if before is None or not _alike(before.message, message):
            turns.append(Turn(message, (share,)))
            continue
        texts = (before.message["content"], message["content"])
        joined = {**before.message, **message, "content": _BETWEEN.join(filter(None, texts))}
        if all(texts):
            share = Share(index, len(texts[0]) + len(_BETWEEN))
        turns[-1] = Turn(joined, (*before.shares, share))
    return turns


def _alike(first: Message, second: Message) -> bool:
    return first["role"] == second["role"] != "tool" and "tool_calls" not in first
