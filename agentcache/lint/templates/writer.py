"""Writes conversations with a template, as the server would: messages in one shape, fitted to what the template knows."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.chat.messages import Message, normalize_messages, normalize_tools
from agentcache.chat.shapes import TemplateShapes
from agentcache.chat.text import without_surrogates
from agentcache.lint.templates.conversations import Conversation
from agentcache.lint.templates.tracing import Traced, TracedTemplate

Options = Mapping[str, Any]
NOW = datetime.datetime(2026, 3, 4, 10, 20, 30, tzinfo=datetime.timezone.utc)


@dataclass(frozen=True)
class TemplateSource:
    """A template and where it stands.

    Attributes:
        file: for messages and locations.
        text: the Jinja source.
        path: place inside the file, where the file is not the template itself.
    """

    file: str
    text: str
    path: str | None = None


class SetClock:
    """A clock that shows what it was set to."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime.datetime:
        return self.now


class Writer:
    """One template and what every rendering gets beside the conversation.

    Args:
        named_tokens: ``bos_token`` … -> text.
    """

    def __init__(self, source: TemplateSource, named_tokens: Mapping[str, str]) -> None:
        self.source = source
        self.clock = SetClock()
        self.template = TracedTemplate(source.text, self.clock)
        self.shapes = TemplateShapes(self.template, named_tokens)
        self._named = dict(named_tokens)
        self._known: dict[tuple[object, ...], str] = {}

    def prompt(self, conversation: Conversation, count: int, options: Options, *, opened: bool = True) -> str:
        """The text of the first ``count`` messages.

        Args:
            opened: with the generation prompt.

        Raises:
            ChatTemplateError: the template refuses them.
        """
        told = tuple(sorted((name, repr(value)) for name, value in options.items()))
        key = (conversation.title, conversation.carrier, count, opened, told, self.clock.now)
        if key not in self._known:
            variables = self._variables(conversation, count, options, opened=opened)
            self._known[key] = without_surrogates(self.template.render(variables))
        return self._known[key]

    def trace(self, conversation: Conversation, count: int, options: Options, *, opened: bool = True) -> Traced:
        """The same with the template's lines."""
        return self.template.trace(self._variables(conversation, count, options, opened=opened))

    def _variables(self, conversation: Conversation, count: int, options: Options, *, opened: bool) -> dict[str, Any]:
        messages: Sequence[Message] = normalize_messages(conversation.messages[:count])
        fitted, tools = self.shapes.fit(messages, normalize_tools(list(conversation.tools)))
        given = {"documents": None, **options, "messages": fitted, "tools": tools}
        return {**self._named, **given, "add_generation_prompt": opened}
