"""Tools that a session learns of behind its head, which stays as it is and cached.

::

    head [ system, tools ]  turn 1 [ user ][ reply ]  turn 2 [ announcement of new tools, user ][ reply ]
         [ cached ........................................ ][ computed ......................... ]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.chat.messages import Message
from agentcache.chat.replies.base import function_of
from agentcache.chat.tool_text import Announcement, with_announcement


@dataclass(frozen=True, slots=True)
class AddedTools:
    """Tools that a turn brought along.

    Attributes:
        schemas: as they were sent; what the head or an earlier turn has is not among them.
        told: what the model was told of them; kept, because every later turn must render it again to the letter.
    """

    schemas: tuple[dict[str, Any], ...]
    told: Announcement

    @property
    def names(self) -> list[str]:
        return [str(function_of(tool).get("name")) for tool in self.schemas]


def beside(messages: Sequence[Message], added: AddedTools | None) -> Sequence[Message]:
    """The new ``messages`` of a turn as the chat template is given them."""
    return with_announcement(messages, added.told) if added is not None and messages else messages
