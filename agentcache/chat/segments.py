"""Token ids of what was tokenised before: agents send the same system prompt hundreds of times.

Nothing merges across a control token, so a prompt is tokenised piece by piece, each beginning with one, and long pieces are
remembered::

    <|im_start|>system⏎ … 20,000 characters … <|im_end|>⏎<|im_start|>user⏎What next?<|im_end|>⏎<|im_start|>assistant⏎
    [ looked up ............................ )[ tokenised in one go ................................................ )
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator

from agentcache.chat.tokenizer import Tokenizer

_LONG = 512
"""Characters from which on looking a piece up is cheaper than tokenising it."""
_KEPT = 16_000_000
"""Characters; their ids take about as many bytes."""


class SegmentMemory:
    """Tokenises prompts, by namespace: how long it takes must not tell one tenant what another one sends.

    Safe to use from any thread.

    Args:
        max_characters: how much text is remembered; what was used least recently goes first.
    """

    def __init__(self, tokenizer: Tokenizer, max_characters: int = _KEPT) -> None:
        self._tokenizer = tokenizer
        self._max_characters = max_characters
        self._characters = 0
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[bytes, str], array[int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def encode(self, root: bytes, text: str) -> array[int]:
        """The ids that the tokenizer gives for ``text``; control tokens are parsed, nothing is added."""
        ids = array("I")
        done = 0
        for start, stop in self._long_pieces(text):
            piece = text[start:stop]
            known = self._find(root, piece)
            if known is None:
                known = array("I", self._tokenizer.encode(piece))
                self._remember(root, piece, known)
            ids.extend(self._plain(text[done:start]))
            ids.extend(known)
            done = stop
        ids.extend(self._plain(text[done:]))
        return ids

    def _plain(self, text: str) -> list[int]:
        return self._tokenizer.encode(text) if text else []

    def _long_pieces(self, text: str) -> Iterator[tuple[int, int]]:
        """``[start, stop)`` of the pieces that are worth remembering, in order."""
        if len(text) < _LONG:
            return
        start = 0
        for border in (*self._tokenizer.borders(text), len(text)):
            if border - start >= _LONG:
                yield start, border
            start = border

    def _find(self, root: bytes, piece: str) -> array[int] | None:
        with self._lock:
            found = self._known.get((root, piece))
            if found is not None:
                self._known.move_to_end((root, piece))
            return found

    def _remember(self, root: bytes, piece: str, ids: array[int]) -> None:
        if len(piece) > self._max_characters:
            return
        with self._lock:
            if (root, piece) in self._known:
                return
            self._known[root, piece] = ids
            self._characters += len(piece)
            while self._characters > self._max_characters:
                (_, oldest), _ = self._known.popitem(last=False)
                self._characters -= len(oldest)
