"""Log-probabilities in the two shapes of OpenAI's endpoints."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentcache.request import TokenLogprob

if TYPE_CHECKING:
    from agentcache.chat.tokenizer import Tokenizer

FLOOR = -9999.0
"""JSON has no infinity: less likely than this reads as this."""


def chat_logprobs(tokenizer: Tokenizer, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
    return {
        "content": [
            _chat_token(tokenizer, entry.token, entry.logprob)
            | {"top_logprobs": [_chat_token(tokenizer, token, logprob) for token, logprob in entry.top]}
            for entry in entries
        ]
    }


def _chat_token(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    raw = tokenizer.token_bytes(token)
    return {"token": raw.decode("utf-8", "replace"), "logprob": max(logprob, FLOOR), "bytes": list(raw)}


class CompletionLogprobs:
    """The lists of ``/v1/completions``, continued over the chunks of one choice.

    ``text_offset`` counts characters of the choice's text; a character that several tokens share begins at the first.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def block(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Lists for ``entries``, which follow those of the last call."""
        return self._lists([(entry.token, entry) for entry in entries])

    def prompt_block(self, ids: Sequence[int], entries: Sequence[TokenLogprob | None]) -> dict[str, Any]:
        """Lists for a prompt; its first token has no log-probability."""
        return self._lists(list(zip(ids, entries, strict=True)))

    def _lists(self, entries: Sequence[tuple[int, TokenLogprob | None]]) -> dict[str, Any]:
        block: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token, entry in entries:
            block["tokens"].append(self._name(token))
            block["token_logprobs"].append(max(entry.logprob, FLOOR) if entry else None)
            block["top_logprobs"].append(self._alternatives(entry) if entry else None)
            block["text_offset"].append(self._offset)
            self._offset += len(self._decoder.decode(self._tokenizer.token_bytes(token)))
        return block

    def _alternatives(self, entry: TokenLogprob) -> dict[str, float]:
        """By name, best first; the chosen token is always among them."""
        named = {self._name(token): max(logprob, FLOOR) for token, logprob in entry.top}
        named.setdefault(self._name(entry.token), max(entry.logprob, FLOOR))
        return named

    def _name(self, token: int) -> str:
        """Text of a token, or ``bytes:\\xNN…`` for one that is no text by itself (so that names stay distinct)."""
        raw = self._tokenizer.token_bytes(token)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two blocks of one choice, one after the other."""
    return {name: first[name] + second[name] for name in first}
