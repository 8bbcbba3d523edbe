"""A bound on the tokens of a text that takes no tokenising: a token stands for so many characters and no more."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tokenizers import models

from agentcache.errors import RequestError

if TYPE_CHECKING:
    from agentcache.chat.tokenizer import Tokenizer

_COMPOSED = 4
"""Characters that Unicode composes into one, at most: a Greek letter with three marks."""
_KEEPING = frozenset({"ByteLevel", "Metaspace", "Digits", "Split", "Punctuation"})
"""Ways of cutting a text that lose nothing of it, unless told to remove what they cut at."""
_SHORTENING = {"NFC": _COMPOSED, "NFKC": _COMPOSED, "NFD": 1, "NFKD": 1, "Lowercase": 1, "Prepend": 1}
"""Ways of rewriting a text: characters that become one."""


class TextBounds:
    """Refuses texts that can never fit, before they are tokenised: ten megabytes take seconds.

    Args:
        tokenizer: of the served model.
        capacity: tokens that prompt and reply may have together.
    """

    def __init__(self, tokenizer: Tokenizer, capacity: int) -> None:
        self._tokenizer = tokenizer
        self._capacity = capacity

    @cached_property
    def longest(self) -> int | None:
        """Characters that a token stands for at most; ``None`` where there is no such number."""
        return longest_token(self._tokenizer)

    def check(self, text: str, param: str = "prompt") -> None:
        """
        Raises:
            RequestError: ``context_length_exceeded``; ``text`` has more tokens than fit, whatever they are.
        """
        self._check(len(text), param)

    def check_messages(self, messages: Iterable[Mapping[str, Any]], param: str = "messages") -> None:
        """The same of a conversation, by what users, tools and system messages say: no template leaves that out.

        Raises:
            RequestError: as ``check``.
        """
        self._check(sum(_characters(message) for message in messages), param)

    def _check(self, characters: int, param: str) -> None:
        if characters <= self._capacity or self.longest is None:  # the first is so nearly always, and costs nothing
            return
        least = -(-characters // self.longest)
        if least > self._capacity:
            raise RequestError(
                f"{param}: got {characters:,} characters, which are at least {least:,} tokens, and no more than "
                f"{self._capacity:,} tokens fit, prompt and reply together",
                param,
                "context_length_exceeded",
            )


def _characters(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    if message.get("role") == "assistant":  # of earlier replies, templates leave the reasoning out
        return 0
    if isinstance(content, str):
        return len(content)
    parts = content if isinstance(content, Sequence) else ()
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return sum(len(text) for text in texts if isinstance(text, str))


def longest_token(tokenizer: Tokenizer) -> int | None:
    """Characters of a text that one token stands for at most.

    Only where every character leaves a trace in the tokens: byte-pair encoding of bytes, or with bytes to fall back on,
    behind steps that drop nothing.  Other tokenizers turn whole words into one unknown token, or swallow white space.
    """
    backend = tokenizer.backend
    model = backend.model
    cuts = _steps(backend.pre_tokenizer, "pretokenizers")
    rewrites = _steps(backend.normalizer, "normalizers")
    of_bytes = any(step["type"] == "ByteLevel" for step in cuts)
    if not isinstance(model, models.BPE) or not (of_bytes or model.byte_fallback):
        return None
    if any(step["type"] not in _KEEPING or step.get("behavior") == "Removed" for step in cuts):
        return None
    if any(token.lstrip or token.rstrip for token in backend.get_added_tokens_decoder().values()):
        return None
    shortest = 1
    for step in rewrites:
        factor = _shortening(step)
        if factor is None:
            return None
        shortest *= factor
    # Each character is counted with the token that holds its first byte.
    pieces = (tokenizer.piece_bytes(token, first=False) for token in range(tokenizer.vocab_size))
    return shortest * max((sum(byte & 0xC0 != 0x80 for byte in piece) for piece in pieces), default=1)


def _shortening(step: Mapping[str, Any]) -> int | None:
    if step["type"] != "Replace":
        return _SHORTENING.get(step["type"])
    pattern = step["pattern"].get("String")
    return 1 if pattern is not None and 0 < len(pattern) <= len(step["content"]) else None


def _steps(component: Any, inner: str) -> list[Mapping[str, Any]]:
    """What a part of the tokenizer does, one step after another."""
    return [] if component is None else _flat(json.loads(component.__getstate__()), inner)


def _flat(step: Mapping[str, Any], inner: str) -> list[Mapping[str, Any]]:
    if step["type"] != "Sequence":
        return [step]
    return [each for part in step[inner] for each in _flat(part, inner)]
