"""OpenAI's chat completions: bodies are taken as they are, but for content that is no text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.dialects.wording import refuse
from agentcache.errors import RequestError
from agentcache.lint.readers.dialects.body import Given, Translated
from agentcache.lint.readers.dialects.kinds import kind
from agentcache.lint.readers.dialects.placeholders import placeholder
from agentcache.lint.records import Keys, Place, PlainPlaces, path_of

_TEXTS = ("text", "input_text", "output_text", "refusal")
"""Types of content parts that templates are given as text."""


def chat_request(given: Given) -> Translated:
    """
    Raises:
        RequestError: it is no body of a chat completion.
    """
    body = given.value
    if "messages" not in body:
        why = "messages is missing: expected the body of a chat request (or input of a response, or prompt of a completion)"
        raise RequestError(why, "messages", "missing_field")
    messages = body["messages"]
    _check_messages(messages)
    for name, expected, type_ in (("tools", "a list", list), ("chat_template_kwargs", "an object", dict)):
        value = body.get(name)
        if value is not None and not isinstance(value, type_):
            raise refuse(name, f"got {kind(value)}, expected {expected}")
    foreign = frozenset(_foreign_parts(messages))
    if not foreign:
        return Translated("chat", body, PlainPlaces(given.prefix))
    shown = [_with_placeholders(message) for message in messages]
    return Translated("chat", {**body, "messages": shown}, PartPlaces(given.prefix, foreign))


@dataclass(frozen=True, slots=True)
class PartPlaces:
    """Places of a body that has placeholders.

    Attributes:
        foreign: message and part of each.
    """

    prefix: str
    foreign: frozenset[tuple[int, int]]

    def find(self, keys: Keys, char: int | None = None) -> Place:
        match keys:
            case ("messages", int(message), "content", int(part), *_) if (message, part) in self.foreign:
                return Place(path_of(keys[:4], self.prefix))
        return Place(path_of(keys, self.prefix), char)


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise refuse("messages", f"got {kind(messages)}, expected a list with at least one message")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            got = "an object without a role" if isinstance(message, dict) else kind(message)
            raise refuse(f"messages[{index}]", f"got {got}, expected an object with a role")
        content = message.get("content")
        if content is not None and not isinstance(content, (str, list)):
            expected = "expected a string, a list of parts or null"
            raise refuse(f"messages[{index}].content", f"got {kind(content)}, {expected}")


def _foreign_parts(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    for index, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, list):
            yield from ((index, part) for part, value in enumerate(content) if _is_foreign(value))


def _with_placeholders(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """``message`` itself, or a copy whose parts are all text."""
    content = message.get("content")
    if not isinstance(content, list) or not any(map(_is_foreign, content)):
        return message
    return {**message, "content": [_as_text(part) if _is_foreign(part) else part for part in content]}


def _is_foreign(part: Any) -> bool:
    name = part.get("type") if isinstance(part, Mapping) else None
    return isinstance(name, str) and name not in _TEXTS


def _as_text(part: Mapping[str, Any]) -> dict[str, str]:
    return {"type": "text", "text": placeholder(str(part["type"]), part)}
