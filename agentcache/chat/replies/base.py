"""What a wire format of tool calls is: how its calls are read, how they are forced, and what its ids look like."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentcache.chat.replies.pieces import Piece

Tool = Mapping[str, Any]
"""A tool as clients send it: ``{"type": "function", "function": {"name": …, "parameters": {JSON schema}}}``, or its inside."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class ReplyParser(Protocol):
    """Reads one reply, in text of any chunking: the joined pieces do not depend on how the text was cut."""

    def push(self, text: str) -> list[Piece]:
        """More of the reply; what is certain of it by now."""

    def flush(self) -> list[Piece]:
        """The reply is over; what was held back."""


class Vocabulary(Protocol):
    """What a grammar must know of a tokenizer."""

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Text -> id of the tokens that no plain text spells."""


@dataclass(frozen=True, slots=True)
class CallChoice:
    """Which calls a grammar allows.

    Args:
        names: the functions that may be called.
        required: the reply is calls and nothing else; otherwise it is free text, in which every call fits its schema.
        parallel: more than one call in a reply.
    """

    names: tuple[str, ...]
    required: bool = True
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class Thinking:
    """The reasoning that may stand before what a grammar describes.

    Args:
        tags: the opening and the closing tag.
        starts_open: the prompt ends inside the reasoning already.
    """

    tags: tuple[str, str]
    starts_open: bool = False


class ToolFormat(ABC):
    """A wire format of tool calls.  Knows nothing of any one reply, so one serves all."""

    name: str
    controls: tuple[str, ...]
    """Markers.  Where they are control tokens of the vocabulary, the text of a reply must keep them visible."""

    def make_id(self, seed: str, index: int) -> str:
        """The id of call ``index`` of the reply that ``seed`` names; the same for the same two, always."""
        return "call_" + _digest(seed, index).hex()[:24]

    @abstractmethod
    def example(self) -> str:
        """One call, to show to a model that was told of no tools by its chat template."""

    @abstractmethod
    def parser(self, tools: Sequence[Tool], seed: str = "") -> ReplyParser:
        """A reader for one reply.

        Args:
            tools: what may be called; formats without markers take only JSON that names one of them for a call.
            seed: what the ids of the calls are made of (the reply's own id).
        """

    @abstractmethod
    def grammar(
        self, tools: Sequence[Tool], choice: CallChoice, vocabulary: Vocabulary, thinking: Thinking | None = None
    ) -> str:
        """A grammar in llguidance's Lark dialect, of replies that ``parser`` reads and the chat template would write.

        Args:
            tools: with the JSON schemas of their arguments.
            vocabulary: markers that are control tokens in it are forced as those tokens.
            thinking: reasoning that may come first.

        Raises:
            RequestError: ``choice`` names a function that is not among ``tools``, or none at all.
        """


def function_of(tool: Tool) -> Mapping[str, Any]:
    """The part of a tool that has its name and its parameters."""
    function = tool.get("function")
    return function if isinstance(function, Mapping) else tool


def names_of(tools: Sequence[Tool]) -> frozenset[str]:
    """The names of ``tools``."""
    names = (function_of(tool).get("name") for tool in tools)
    return frozenset(name for name in names if isinstance(name, str))


def short_id(seed: str, index: int) -> str:
    """Nine letters and digits, which is what Mistral's templates insist on."""
    number = int.from_bytes(_digest(seed, index), "big")
    letters: list[str] = []
    for _ in range(9):
        number, digit = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[digit])
    return "".join(letters)


def _digest(seed: str, index: int) -> bytes:
    return hashlib.sha256(f"{index}:{seed}".encode("utf-8", "replace")).digest()
