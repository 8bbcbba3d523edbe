"""A conversation of the Messages API as chat messages, and the beginning of its reply where the client wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agentcache.chat.messages import Message
from agentcache.dialects.anthropic.blocks import Calls, Placed, chat_messages
from agentcache.dialects.anthropic.tools import Tool
from agentcache.dialects.anthropic.turns import in_turns
from agentcache.dialects.foreign import Foreign
from agentcache.dialects.joined import Piece
from agentcache.dialects.wording import refuse

Said = TypeVar("Said", bound="Conversation")


@dataclass(frozen=True)
class Conversation:
    """
    Attributes:
        prefill: the beginning of the reply, where the client wrote it.
        prefill_pieces: the strings that it was joined of.
    """

    placed: Sequence[Placed]
    tools: list[Tool] | None = None
    prefill: str | None = None
    calls: Calls = field(default_factory=Calls)
    prefill_pieces: Sequence[Piece] = ()

    @property
    def messages(self) -> list[Message]:
        return [placed.message for placed in self.placed]

    def followed_by(self: Said, messages: Sequence[Mapping[str, Any]], foreign: Foreign) -> Said:
        """This and what the messages of a body say.

        Raises:
            RequestError: naming the place.
        """
        calls = Calls(dict(self.calls.names))
        said = [*self.placed, *chat_messages(messages, calls, foreign)]
        if all(placed.place == "system" for placed in said):
            raise refuse("messages", "got an empty list, expected at least one message")
        last = said[-1]
        if last.message["role"] != "assistant":
            return replace(self, placed=said, prefill=None, calls=calls)
        if "tool_calls" in last.message or "reasoning_content" in last.message:
            why = "ends with an assistant message that calls tools or thinks, expected results of the calls, or plain text"
            raise refuse(last.place, why)
        beginning = last.message["content"] or None
        return replace(self, placed=said[:-1], prefill=beginning, calls=calls, prefill_pieces=last.content)

    def in_turns(self: Said, *, system: bool) -> Said:
        """For templates that insist on turns: what the system says behind the beginning is the user's, and neighbours of one
        role are one message, whose pieces are not told.

        Args:
            system: whether the system may speak at the beginning.
        """
        placed = []
        for turn in in_turns(self.messages, system=system):
            first = self.placed[turn.shares[0].message]
            same = turn.message is first.message
            placed.append(first if same else Placed(turn.message, first.place, first.index))
        return replace(self, placed=placed)
