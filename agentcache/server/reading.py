"""How the replies of one request are read: reasoning, text and tool calls, streamed or whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.chat.replies.base import ToolFormat
from agentcache.chat.replies.pieces import ReplyMessage
from agentcache.chat.replies.reader import ReplyReader


@dataclass(frozen=True)
class Reading:
    """What has to be known to read a reply.

    Attributes:
        format: how calls are written; ``None`` where none are looked for.
        tools: the schemas that the model was told.
        reasoning: the tags around reasoning, if the model has any.
        in_reasoning: the prompt itself opened the reasoning.
        seed: what the ids of calls are made from, so that reading twice gives the same ids.
    """

    format: ToolFormat | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    reasoning: tuple[str, str] | None = None
    in_reasoning: bool = False
    seed: str = ""

    def reader(self, choice: int) -> ReplyReader:
        """For one choice, from its beginning."""
        return ReplyReader(self.format, self.tools, self.reasoning, self.in_reasoning, f"{self.seed}-{choice}")

    def read(self, choice: int, text: str) -> ReplyMessage:
        """A whole reply."""
        return self.reader(choice).read(text)


PLAIN = Reading()
"""Everything is text."""
