"""How the replies of one request are read: reasoning, text and tool calls, streamed or whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.chat.detokenizer import TextStream
from agentcache.chat.replies.base import ToolFormat
from agentcache.chat.replies.pieces import ReplyMessage
from agentcache.chat.replies.reader import ReplyReader

Arguments = Callable[[str, str], str]
"""From the name of a tool and the arguments of a call to those that its client is told."""


@dataclass(frozen=True)
class Reading:
    """What has to be known to read a reply.

    Attributes:
        format: how calls are written; ``None`` where none are looked for.
        tools: the schemas that the model was told.
        reasoning: the tags around reasoning, if the model has any.
        in_reasoning: the prompt itself opened the reasoning.
        seed: what the ids of calls are made from, so that reading twice gives the same ids.
        arguments: where clients are told others than were written: a reply is known again by those that come back.
    """

    format: ToolFormat | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    reasoning: tuple[str, str] | None = None
    in_reasoning: bool = False
    seed: str = ""
    arguments: Arguments | None = None

    def reader(self, choice: int) -> ReplyReader:
        """For one choice, from its beginning."""
        return ReplyReader(self.format, self.tools, self.reasoning, self.in_reasoning, f"{self.seed}-{choice}")

    def read(self, choice: int, text: str) -> ReplyMessage:
        """A whole reply, as its client is told it."""
        reply = self.reader(choice).read(text)
        if self.arguments is not None:
            for call in reply.calls:
                call.arguments = self.arguments(call.name, call.arguments)
        return reply


PLAIN = Reading()
"""Everything is text."""


def reasoning_tokens(text: str, token_ids: Sequence[int], tags: tuple[str, str], spelling: TextStream) -> int:
    """How many tokens a reply spent on reasoning, its tags included: all, where it was cut before it ended.

    Args:
        text: of the reply, which reasons.
        spelling: a fresh stream of the tokens' text, as the reply's was made.
    """
    close = text.find(tags[1])
    if close < 0:
        return len(token_ids)
    end, place = close + len(tags[1]), 0
    for count, token in enumerate(token_ids, start=1):
        place += len(spelling.push(token).text)
        if place >= end:
            return count
    return len(token_ids)
