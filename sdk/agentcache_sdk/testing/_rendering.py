"""Conversations as token ids, and where in them each message lies.

::

    [BEGIN system \\n  text, tools  END][BEGIN user \\n  text  END] ... [BEGIN assistant \\n
    |- messages[0] ------------------ ||- messages[1] ---------- |     |- what the reply follows
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentcache_sdk.testing._tokens import BEGIN, END, encode

Message = dict[str, Any]
NEW_TOOLS = "new tools"
"""Role of the entry that stands for tools which were added with a turn; no client sends it."""


@dataclass(frozen=True)
class Span:
    """Up to which token a part of the prompt reaches, and where the part comes from."""

    end: int
    message: int | None
    path: str | None


@dataclass
class Prompt:
    """Ids, and what they were made of.

    Attributes:
        known: whether a reply in it is one that was given here.
        head: how many of the tokens are the system text and the tools.
    """

    tokens: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    known: bool = False
    head: int = 0

    def place(self, token: int) -> tuple[int | None, str | None]:
        """Index and path of the message that a token lies in; nothing for what a reply follows."""
        return next(((span.message, span.path) for span in self.spans if token < span.end), (None, None))


@dataclass
class ReplyMemory:
    """Reasoning of the replies that were given, for histories that leave it out."""

    _reasoning: dict[int, str] = field(default_factory=dict)

    def note(self, before: Sequence[int], message: Message) -> None:
        self._reasoning[self._key(before, message)] = reasoning_of(message)

    def find(self, before: Sequence[int], message: Message) -> str | None:
        return self._reasoning.get(self._key(before, message))

    @staticmethod
    def _key(before: Sequence[int], message: Message) -> int:
        return hash((tuple(before), content_of(message), tuple(map(call_text, message.get("tool_calls") or ()))))


def render(messages: Sequence[Message], tools: Sequence[Any] | None, memory: ReplyMemory) -> Prompt:
    """What a model would be given to reply to ``messages``."""
    prompt = Prompt()
    if tools and (not messages or messages[0].get("role") != "system"):
        _add(prompt, Span(0, 0, "messages[0].content"), "system", [], tools)
        prompt.head = len(prompt.tokens)
    index = 0
    for message in messages:
        role = str(message.get("role"))
        if role == NEW_TOOLS:
            _add(prompt, Span(0, index, f"messages[{index}].content"), "system", [], message["tools"])
            continue
        part = "tool_calls" if message.get("tool_calls") and not content_of(message) else "content"
        path = f"messages[{index}].{part}"
        if role == "assistant":
            _add_reply(prompt, message, memory, index, path)
        else:
            own_tools = tools if not index and role == "system" else None
            _add(prompt, Span(0, index, path), role, encode(content_of(message)), own_tools)
            if not index and role == "system":
                prompt.head = len(prompt.tokens)
        index += 1
    prompt.tokens += opening("assistant")
    return prompt


def opening(role: str) -> list[int]:
    return [BEGIN, *encode(f"{role}\n")]


def _add(prompt: Prompt, where: Span, role: str, content: list[int], tools: Sequence[Any] | None) -> None:
    schemas = [token for tool in tools or () for token in encode("\n" + json.dumps(tool, ensure_ascii=False))]
    prompt.tokens += [*opening(role), *content, *schemas, END]
    prompt.spans.append(replace(where, end=len(prompt.tokens)))


def _add_reply(prompt: Prompt, message: Message, memory: ReplyMemory, index: int, path: str) -> None:
    prompt.tokens += opening("assistant")
    said = memory.find(prompt.tokens, message)
    prompt.known = prompt.known or said is not None
    if said and not reasoning_of(message):
        message = {**message, "reasoning_content": said}
    prompt.tokens += [*reply_tokens(message), END]
    prompt.spans.append(Span(len(prompt.tokens), index, path))


def reply_tokens(message: Message) -> list[int]:
    """Ids of an assistant message as a model would have drawn it, without the end token."""
    reasoning = reasoning_of(message)
    parts = ["<think>", reasoning, "</think>"] if reasoning else []
    parts += [content_of(message), *map(call_text, message.get("tool_calls") or ())]
    return [token for part in parts for token in encode(part)]


def content_of(message: Mapping[str, Any]) -> str:
    """A message's text; parts are joined."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part if isinstance(part, str) else str(part.get("text") or "") for part in content)
    return content if isinstance(content, str) else ""


def reasoning_of(message: Mapping[str, Any]) -> str:
    return str(message.get("reasoning_content") or "")


def call_text(call: Mapping[str, Any]) -> str:
    """A call as it is drawn; ids, white space and the order of keys are of no matter."""
    function = call.get("function") or {}
    arguments = function.get("arguments") or "{}"
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        pass  # arguments that are no JSON stay the text that they are
    said = {"name": function.get("name"), "arguments": arguments}
    return f"<tool_call>{json.dumps(said, ensure_ascii=False, sort_keys=True)}</tool_call>"
