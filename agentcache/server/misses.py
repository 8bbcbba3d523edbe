"""Where in a request the cache ended: from a token to a message and a piece of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentcache.cache.explain import Miss
from agentcache.chat.renderer import MessageSpans
from agentcache.chat.replies.pieces import ReplyMessage
from agentcache.chat.splice import ChatInput
from agentcache.server.share_points import SharePoint
from agentcache.sessions.transcript import Mark, Prompt, Transcript, text_around

if TYPE_CHECKING:
    from agentcache.chat.renderer import ChatRenderer
    from agentcache.chat.tokenizer import Tokenizer

_SHOWN = 40
"""Characters of a text that are shown where it parts from another."""
_LONG = 50_000
"""Characters; rendering so much again and again would cost more than the answer is worth."""
_SHOWN_TOKENS = 40
"""Enough tokens for so many characters."""


Read = Callable[[int, str], ReplyMessage]
"""What the text of a choice says."""


def all_content(choice: int, text: str) -> ReplyMessage:
    """A reply in which nothing is looked for."""
    return ReplyMessage(content=text)


@dataclass(frozen=True)
class Asked:
    """What a prompt was made of; ``messages`` is empty for a raw one.

    Attributes:
        read: how its replies are read.
    """

    prompt: Prompt
    messages: Sequence[Mapping[str, Any]] = ()
    tools: Sequence[Mapping[str, Any]] | None = None
    template_kwargs: Mapping[str, Any] | None = None
    read: Read = all_content

    def first(self, count: int) -> ChatInput:
        """Its first ``count`` messages, nothing asked yet."""
        return ChatInput(self.messages[:count], self.tools, self.template_kwargs, add_generation_prompt=False)


def describe(miss: Miss, places: Places) -> dict[str, Any]:
    """The ``miss`` of a response: with the message that the first uncached token is in, and its text."""
    asked, renderer = places.asked, places.renderer
    transcript = asked.prompt.transcript
    data = miss.to_json()
    if miss.was_tokens:
        data["was"] = renderer.tokenizer.decode(miss.was_tokens, skip_special_tokens=False)[:_SHOWN]
    if not asked.messages:
        ids = transcript.ids[miss.at_token : miss.at_token + _SHOWN_TOKENS].tolist()
        return data | {"path": "prompt", "now": renderer.tokenizer.decode(ids, skip_special_tokens=False)[:_SHOWN]}
    position = character_of(asked.prompt, miss.at_token, renderer.tokenizer)
    index, path = places.message_at(position)
    return data | {"message_index": index, "path": path, "now": transcript.text[position : position + _SHOWN]}


def template_break(places: Places, before: Transcript, cached: int) -> dict[str, Any]:
    """The ``miss`` of a turn whose template did not repeat its own beginning."""
    asked = places.asked
    position = asked.prompt.broken_at or 0
    index, path = places.message_at(position)
    return {
        "code": "template",
        "at_token": cached,
        "message_index": index,
        "path": path,
        "was": before.text[position : position + _SHOWN],
        "now": asked.prompt.transcript.text[position : position + _SHOWN],
        "detail": f"the chat template rendered the earlier turns differently from character {position} on",
    }


def character_of(prompt: Prompt, token: int, tokenizer: Tokenizer) -> int:
    """The character of the prompt's text at which ``token`` begins."""
    if prompt.encoded is not None and token < len(prompt.encoded.ids):
        return prompt.encoded.start(token)
    marks = [mark for reply in prompt.transcript.replies for mark in (reply.start, reply.end)]
    start, character = max((mark for mark in (*marks, prompt.kept) if mark.tokens <= token), default=Mark(0, 0))
    ids = prompt.transcript.ids[start:token].tolist()
    return min(character + len(tokenizer.decode(ids, skip_special_tokens=False)), len(prompt.transcript.text))


def share_point_list(found: Sequence[SharePoint], places: Places, page_size: int) -> list[dict[str, Any]]:
    """``alignment.share_points`` of a response, in the order of ``found``."""
    asked, tokenizer = places.asked, places.renderer.tokenizer
    points = []
    for token in (point.token for point in found):
        path: str | None = "prompt"
        if asked.messages:
            _, path = places.message_at(character_of(asked.prompt, token, tokenizer))
        points.append({"path": path, "token": token, "tail": token % page_size})
    return points


class Places:
    """Which message a character of a prompt belongs to; remembers what it had to find out."""

    def __init__(self, asked: Asked, renderer: ChatRenderer) -> None:
        self.asked = asked
        self.renderer = renderer
        self._spans = MessageSpans(asked.prompt.transcript.text, len(asked.messages), self._render_first)

    def message_at(self, position: int) -> tuple[int | None, str | None]:
        """Index and path of the message that a character belongs to; nothing for the generation prompt."""
        index: int | None = 0
        if len(self.asked.prompt.transcript.text) > _LONG and position:
            index = _by_content(self.asked, position)
        elif position:
            index = self._spans.message_at(position)
        if index is None:
            return None, None
        message = self.asked.messages[index]
        part = next((part for part in ("content", "tool_calls") if message.get(part)), None)
        return index, f"messages[{index}]" + (f".{part}" if part else "")

    def _render_first(self, count: int) -> str:
        """The first messages as the prompt has them: replies as they were drawn."""
        return text_around(self.asked.prompt.transcript, self.asked.first(count), self.renderer)


def _by_content(asked: Asked, position: int) -> int | None:
    """The first message whose text ends behind ``position``, by searching one after the other; only in long texts."""
    text = asked.prompt.transcript.text
    drawn = {reply.message: reply.end.characters for reply in asked.prompt.transcript.replies}
    place = 0
    for index, message in enumerate(asked.messages):
        content = message.get("content")
        if index in drawn:
            place = drawn[index]
        elif isinstance(content, str) and (found := text.find(content, place)) >= 0:
            place = found + len(content)
        if place > position:
            return index
    return None
