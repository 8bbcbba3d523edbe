"""Token ids of what was tokenised before: agents send the same system prompt hundreds of times.

Nothing merges across a control token, so a prompt is tokenised piece by piece, each beginning with one, and long pieces are
remembered::

    <|im_start|>system⏎ … 20,000 characters … <|im_end|>⏎<|im_start|>user⏎What next?<|im_end|>⏎<|im_start|>assistant⏎
    [ looked up ............................ )[ tokenised in one go ................................................ )
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from agentcache.chat.tokenizer import Tokenizer

_LONG = 512
"""Characters from which on looking a piece up is cheaper than tokenising it."""
_KEPT = 4_000_000
"""Characters; their ids take about twice as many bytes."""


class Piece(NamedTuple):
    """Ids of a piece of text, and the character of the piece at which each begins."""

    ids: array[int]
    starts: array[int]


class Encoded:
    """A tokenised text, put together from pieces."""

    def __init__(self) -> None:
        self.ids = array("I")
        self._tokens: list[int] = []
        self._characters: list[int] = []
        self._pieces: list[Piece] = []

    def add(self, piece: Piece, place: int) -> None:
        """``piece`` begins at character ``place``."""
        self._tokens.append(len(self.ids))
        self._characters.append(place)
        self._pieces.append(piece)
        self.ids.extend(piece.ids)

    def start(self, token: int) -> int:
        """The character at which the ``token``-th token begins."""
        index = bisect_right(self._tokens, token) - 1
        return self._characters[index] + self._pieces[index].starts[token - self._tokens[index]]


class SegmentMemory:
    """Tokenises prompts, by namespace: how long it takes must not tell one tenant what another one sends.

    Safe to use from any thread.

    Args:
        max_characters: how much text is remembered; what was used least recently goes first.
    """

    def __init__(self, tokenizer: Tokenizer, max_characters: int = _KEPT) -> None:
        self.tokenizer = tokenizer
        self._max_characters = max_characters
        self._characters = 0
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[bytes, str], Piece] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def encode(self, root: bytes, text: str) -> Encoded:
        """What the tokenizer makes of ``text``; control tokens are parsed, nothing is added.  No ``root``: not remembered."""
        encoded = Encoded()
        done = 0
        for start, stop in (*self._long_pieces(root, text), (len(text), len(text))):
            if done < start:
                encoded.add(self._tokenised(text[done:start]), done)
            if start < stop:
                encoded.add(self._looked_up(root, text[start:stop]), start)
            done = stop
        return encoded

    def _tokenised(self, text: str) -> Piece:
        ids, offsets = self.tokenizer.encode_with_offsets(text)
        return Piece(array("I", ids), array("I", [start for start, _ in offsets]))

    def _looked_up(self, root: bytes, text: str) -> Piece:
        known = self._find(root, text)
        if known is None:
            known = self._tokenised(text)
            self._remember(root, text, known)
        return known

    def _long_pieces(self, root: bytes, text: str) -> Iterator[tuple[int, int]]:
        """``[start, stop)`` of the pieces that are worth remembering, in order."""
        if len(text) < _LONG or not root:
            return
        start = 0
        for border in (*self.tokenizer.borders(text), len(text)):
            if border - start >= _LONG:
                yield start, border
            start = border

    def _find(self, root: bytes, text: str) -> Piece | None:
        with self._lock:
            found = self._known.get((root, text))
            if found is not None:
                self._known.move_to_end((root, text))
            return found

    def _remember(self, root: bytes, text: str, piece: Piece) -> None:
        if len(text) > self._max_characters:
            return
        with self._lock:
            if (root, text) in self._known:
                return
            self._known[root, text] = piece
            self._characters += len(text)
            while self._characters > self._max_characters:
                (_, oldest), _ = self._known.popitem(last=False)
                self._characters -= len(oldest)
