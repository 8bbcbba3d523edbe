"""Which tokens of a reply belong to which of its pieces: for log-probabilities, and to count reasoning."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from agentcache.chat.detokenizer import TextStream
from agentcache.chat.replies.pieces import Content, Piece
from agentcache.request import TokenLogprob
from agentcache.server.generation import Delta

if TYPE_CHECKING:
    from agentcache.chat.replies.reader import ReplyReader
    from agentcache.chat.tokenizer import Tokenizer

Told = tuple[Piece, Sequence[TokenLogprob]]
"""A piece, and the tokens that it is made of where they are told."""


class PlainPieces:
    """Pieces alone."""

    def __init__(self, reader: ReplyReader) -> None:
        self._reader = reader

    def take(self, delta: Delta) -> Iterator[Told]:
        found = self._reader.push(delta.text)
        if delta.finish_reason is not None:
            found += self._reader.flush()
        return ((piece, ()) for piece in found)


class TokenPieces:
    """Pieces with the tokens of content.

    The text is read token by token, however it came, so that the same tokens belong to the same pieces in a stream and
    in a whole answer.  Tokens whose text a reader holds back belong to what it makes of it, markers to nothing::

        tokens   "Hi" " <to" "ol_call>" …        "Hi" " <to" "tally>"        "</th" "ink>" "Hi"
        pieces   [Content]  [ CallStart ]        [Content ......... ]                      [Content]
    """

    def __init__(self, reader: ReplyReader, tokenizer: Tokenizer, shown: frozenset[int]) -> None:
        self._reader = reader
        self._spelling = TextStream(tokenizer, shown=shown)
        self._spelled = 0
        self._read = 0
        self._text = ""
        self._coming: deque[_Spelled] = deque()
        """Tokens whose text was not read yet."""
        self._held: list[_Spelled] = []

    def take(self, delta: Delta) -> Iterator[Told]:
        self._text += delta.text
        for entry in delta.logprobs:
            text = self._spelling.push(entry.token).text
            self._spelled += len(text)
            self._coming.append(_Spelled(entry, text, self._spelled))
        while self._coming and self._coming[0].end <= len(self._text):
            token = self._coming.popleft()
            self._held.append(token)
            yield from self._tell(self._reader.push(self._text[self._read : token.end]))
            self._read = token.end
        if delta.finish_reason is not None:
            # Of a token that a stop string cut, part of the text is left; and what was held back comes with the end.
            rest = self._text[self._read :]
            if rest and self._coming:
                self._held.append(self._coming[0]._replace(text=rest))
            yield from self._tell(self._reader.push(rest) + self._reader.flush())

    def _tell(self, pieces: list[Piece]) -> Iterator[Told]:
        for piece in pieces:
            held, self._held = self._held, []
            yield piece, _spelling(held, piece.text) if isinstance(piece, Content) else ()


class _Spelled(NamedTuple):
    """A token, the text that it adds, and the character of the reply that it ends at."""

    entry: TokenLogprob
    text: str
    end: int


def _spelling(tokens: Sequence[_Spelled], text: str) -> list[TokenLogprob]:
    """Those of ``tokens``, which stand side by side, that ``text`` is in: without markers before and behind it."""
    if not text:
        return []
    if text not in "".join(token.text for token in tokens):
        return [token.entry for token in tokens]
    start, end = 0, len(tokens)
    while text in "".join(token.text for token in tokens[start + 1 : end]):
        start += 1
    while text in "".join(token.text for token in tokens[start : end - 1]):
        end -= 1
    while start and not tokens[start - 1].text:  # the first bytes of a character come without text
        start -= 1
    return [token.entry for token in tokens[start:end]]
