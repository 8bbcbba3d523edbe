"""A prompt's text around a token, and the part of the request that it belongs to."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentcache.cache.explain import Miss
from agentcache.cache.hashing import TOKEN_BYTES, pack_tokens, unpack_tokens
from agentcache.chat.text import common_length
from agentcache.server.findings.spot import Basis, Spot
from agentcache.server.misses import Places, character_of

_COMPARED = 4096
"""Tokens of the prompt, from the page on in which it parted, that are compared with what is cached."""
_SYSTEM = ("system", "developer")


class Part(enum.Enum):
    """Of a prompt."""

    SYSTEM = "inside the text of a system message"
    FRAME = (
        "before the conversation, outside the system message's text: what the template writes there, tools above all"
    )
    HISTORY = "in a message that has been replied to"
    NEWEST = "in what is new: here prompts may differ"
    RAW = "a prompt without messages"


@dataclass(frozen=True, slots=True)
class Branch:
    """What the cache holds instead of what the prompt has from token ``at`` on; packed ids."""

    at: int
    was: bytes
    now: bytes


class PartedPrompt:
    """A prompt that parted from what is cached.

    Args:
        miss: says where, and what is cached there.
        told: the same as the response says it, with the message that the first token which differs is in.
    """

    def __init__(self, places: Places, miss: Miss, told: Mapping[str, Any], basis: Basis) -> None:
        self.asked = places.asked
        self.tokenizer = places.renderer.tokenizer
        self.miss = miss
        self.basis = basis
        self.index: int | None = told["message_index"]
        self.path: str | None = told["path"]

    def generated(self, text: str) -> bool:
        """Whether a reply of that text was generated in the prompt's namespace."""
        return self.basis.said is not None and self.basis.said.knows(self.basis.root, text)

    @property
    def text(self) -> str:
        return self.asked.prompt.transcript.text

    @cached_property
    def char(self) -> int:
        """Where in the text the first token that differs begins."""
        return self.character(self.miss.at_token)

    def character(self, token: int) -> int:
        return character_of(self.asked.prompt, token, self.tokenizer)

    def decode(self, packed: bytes, tokens: int | None = None) -> str:
        """Text of the first ``tokens`` of packed ids."""
        ids = unpack_tokens(packed if tokens is None else packed[: tokens * TOKEN_BYTES])
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        return tuple(self._branches())

    def _branches(self) -> Iterator[Branch]:
        start = self.miss.branch_start
        own = pack_tokens(self.asked.prompt.transcript.ids[start : start + _COMPARED])
        for known in self.miss.branches:
            common = common_length(known, own) // TOKEN_BYTES
            if common * TOKEN_BYTES < min(len(known), len(own)):
                yield Branch(start + common, known[common * TOKEN_BYTES :], own[common * TOKEN_BYTES :])

    @cached_property
    def last_reply(self) -> int:
        """Index of the last message that a model said; -1 without one."""
        replies = (i for i, message in enumerate(self.asked.messages) if message.get("role") == "assistant")
        return max(replies, default=-1)

    @cached_property
    def part(self) -> Part:
        """Where the first token that differs is."""
        messages = self.asked.messages
        if not messages:
            return Part.RAW
        if self.index is None:
            return Part.NEWEST
        first = next((i for i, message in enumerate(messages) if message.get("role") not in _SYSTEM), len(messages))
        if self.index <= first:
            start, end = span_of(self.text, messages[self.index])
            if messages[self.index].get("role") in _SYSTEM:
                return Part.SYSTEM if start <= self.char < end else Part.FRAME
            if self.char < start:
                return Part.FRAME
        return Part.HISTORY if self.index <= self.last_reply else Part.NEWEST

    @property
    def ends_content(self) -> bool:
        """Whether the message's own text ends where the prompt parted."""
        return self.index is not None and span_of(self.text, self.asked.messages[self.index])[1] == self.char

    def own_text_beside(self, char: int, end_char: int) -> float:
        """How much of the message's own text lies outside ``[char, end_char)``, as a share of all of it."""
        if self.index is None:
            return 0.0
        start, end = span_of(self.text, self.asked.messages[self.index])
        inside = max(0, min(end, end_char) - max(start, char))
        return 1 - inside / (end - start) if end > start else 0.0

    def spot(self, token: int, char: int | None = None) -> Spot:
        """The place of ``token`` in the message that the prompt parted in.

        Args:
            char: of the prompt's text, if it is another than the token's first.
        """
        if self.index is None:
            return Spot(token, self.path)
        message = self.asked.messages[self.index]
        start, end = span_of(self.text, message)
        place = self.character(token) if char is None else char
        if self.path is None or not self.path.endswith(".content") or not start <= place <= end:
            return Spot(token, self.path)
        content = content_of(message)
        return Spot(token, self.path, place - start + len(content) - len(content.lstrip()))


def content_of(message: Mapping[str, Any]) -> str:
    """The text of a message, parts joined."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    return content if isinstance(content, str) else ""


def span_of(text: str, message: Mapping[str, Any]) -> tuple[int, int]:
    """Characters ``[start, end)`` of a prompt's text that are the message's content, without blanks around it."""
    content = content_of(message).strip()
    start = text.find(content) if content else -1
    return (start, start + len(content)) if start >= 0 else (0, 0)
