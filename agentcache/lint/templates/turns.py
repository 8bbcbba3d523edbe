"""Follows a conversation turn by turn: is what was sent and answered the beginning of what is sent next?

::

    request n        [ history ......... ][ opening ]                      the prompt that the cache holds
      and its reply  [ history ......... ][ opening ][ reply ....... ]     what it holds when the reply is done
    request n + 1    [ history ......... ][ opening ][ reply ....... ][ what was said since ][ opening ]

Where the history is written another way, everything behind that place is computed again (``PROMPT``); where only the opening
or the reply is, the reply is (``REPLY``).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from agentcache.chat.messages import Message
from agentcache.chat.renderer import MessageSpans
from agentcache.chat.text import common_length
from agentcache.errors import ChatTemplateError
from agentcache.lint.templates.conversations import REASONING_KEYS, Conversation
from agentcache.lint.templates.writer import Options, Writer


class Part(enum.Enum):
    """What of a request is not the beginning of the next."""

    PROMPT = "prompt"
    REPLY = "reply"


@dataclass(frozen=True)
class Rewrite:
    """A request that is not the beginning of the next one.

    Attributes:
        earlier, later: how many messages the two requests have.
        before: text of the earlier one, with its reply where that is the part that is lost.
        after: text of the later one.
        opened: how much of ``before`` the request itself is: what it ends with is the generation prompt.
        char: the first character that differs.
        end: where the part of ``before`` ends that should have been kept.
    """

    part: Part
    conversation: Conversation
    options: Options
    earlier: int
    later: int
    before: str
    after: str
    opened: int
    char: int
    end: int

    @property
    def reply(self) -> Message:
        """The reply to the earlier request."""
        return self.conversation.messages[self.earlier]


@dataclass(frozen=True)
class Course:
    """How a conversation went.

    Attributes:
        refused: in the template's words, why it does not take the conversation.
        prompts: the text of each request, in order.
        rewrites: where one is not the beginning of the next.
    """

    conversation: Conversation
    options: Options
    refused: str | None
    prompts: tuple[str, ...]
    rewrites: tuple[Rewrite, ...]

    def of(self, part: Part) -> list[Rewrite]:
        return [rewrite for rewrite in self.rewrites if rewrite.part is part]


def follow(writer: Writer, conversation: Conversation, options: Options) -> Course:
    """Write every request of ``conversation`` and compare each with the next."""
    turns = conversation.turns()
    try:
        prompts = tuple(writer.prompt(conversation, count, options) for count in turns)
    except ChatTemplateError as error:
        return Course(conversation, options, str(error), (), ())
    found = []
    for (earlier, later), (before, after) in zip(pairwise(turns), pairwise(prompts), strict=True):
        turn = _Turn(writer, conversation, options, earlier, later, before, after)
        rewrite = turn.rewritten_prompt() or turn.rewritten_reply()
        if rewrite is not None:
            found.append(rewrite)
    return Course(conversation, options, None, prompts, tuple(found))


@dataclass(frozen=True)
class _Turn:
    """One request and the next one."""

    writer: Writer
    conversation: Conversation
    options: Options
    earlier: int
    later: int
    before: str
    after: str

    def rewritten_prompt(self) -> Rewrite | None:
        end = self._history_end()
        char = common_length(self.before, self.after)
        return None if char >= end else self._rewrite(Part.PROMPT, self.before, char, end)

    def rewritten_reply(self) -> Rewrite | None:
        """The opening or the reply reads otherwise in the next request, or what was thought is not there at all."""
        thought = _thought(self._reply)
        closed = self._closed()
        told = closed is not None and closed.startswith(self.before) and thought in closed
        whole = closed if told and closed is not None else self.before + _spoken(self._reply)
        char = common_length(whole, self.after)
        kept = self.after.startswith(self.before) and thought in self.after[len(self.before) :]
        if kept and (not told or char >= len(whole.rstrip())):
            return None
        return self._rewrite(Part.REPLY, whole, char, len(whole))

    @property
    def _reply(self) -> Message:
        return self.conversation.messages[self.earlier]

    def _rewrite(self, part: Part, before: str, char: int, end: int) -> Rewrite:
        opened = len(self.before)
        return Rewrite(
            part, self.conversation, self.options, self.earlier, self.later, before, self.after, opened, char, end
        )  # fmt: skip

    def _history_end(self) -> int:
        """Where the opening begins; where that cannot be told, the end of the last thing that was said."""
        history = self._history(self.earlier)
        if history is not None and len(history) < len(self.before) and self.before.startswith(history):
            return len(history)
        return _end_of(self.before, self.conversation.messages[self.earlier - 1])

    def _closed(self) -> str | None:
        """The history up to the reply, as the template tells it."""
        closed = self._history(self.earlier + 1)
        if closed is None or self._history(self.earlier) != self.before:
            return closed
        # It asks for a reply whether it is told to or not.
        return closed[: len(closed) - common_length(closed[::-1], self.before[::-1])]

    def _history(self, count: int) -> str | None:
        try:
            return self.writer.prompt(self.conversation, count, self.options, opened=False)
        except ChatTemplateError:
            return None


def rewritten_message(writer: Writer, rewrite: Rewrite) -> int | None:
    """The message in which the two requests part; ``None`` for the opening."""

    def first(count: int) -> str:
        return writer.prompt(rewrite.conversation, count, rewrite.options, opened=False)

    return MessageSpans(rewrite.before, rewrite.earlier, first).message_at(rewrite.char)


def _end_of(text: str, message: Message) -> int:
    """Where the last thing that ``message`` says ends in ``text``; 0 when it says nothing that is there."""
    ends = (text.rfind(said) + len(said) for said in _sayings(message) if said in text)
    return max(ends, default=0)


def _sayings(message: Message) -> Iterator[str]:
    yield from filter(None, [message.get("content")])
    for call in message.get("tool_calls", ()):
        yield from call["function"]["arguments"].values()


def _spoken(message: Message) -> str:
    """About what a model writes for ``message``, where the template does not tell."""
    return "\n".join([_thought(message), *_sayings(message)])


def _thought(message: Message) -> str:
    inline = message["content"].partition("</think>")[0].removeprefix("<think>").strip()
    told = next((message[key] for key in REASONING_KEYS if message.get(key)), "")
    return told or (inline if "</think>" in message["content"] else "")
