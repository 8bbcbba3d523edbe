"""Token ids to text as a stream: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from agentcache.chat.tokenizer import Tokenizer, strip_length
from agentcache.errors import RequestError


class TextDelta(NamedTuple):
    """Text that is safe to show, and the stop string that ended the text, if one did (the text excludes it)."""

    text: str
    stopped_by: str | None


_NOTHING = TextDelta("", None)


class StopMatcher:
    """Finds the first stop string to be *completed* in a text that arrives in pieces, and holds back what may become one.

    "First completed" does not depend on how the text is cut into pieces, and is known at once; of two that end at the same
    character the longer one wins.  It is the automaton of Aho and Corasick (1975): its state is the longest end of the text
    that begins a stop string, so its depth is how much must be held back::

        text:   shown ................. | held
                                          [ longest end that begins a stop string ]

    Amortised O(1) per character, whatever the number of stop strings.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._ends: list[str | None] = [None]
        for i, text in enumerate(stop):
            if not text:
                raise RequestError(f"stop[{i}]: got an empty string, expected at least one character", f"stop[{i}]")
            self._add(text)
        self._fail = [0] * len(self._next)
        self._link()
        self._state = 0
        self._held = ""

    def _add(self, text: str) -> None:
        state = 0
        for char in text:
            if char not in self._next[state]:
                self._next[state][char] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._ends.append(None)
            state = self._next[state][char]
        self._ends[state] = text

    def _link(self) -> None:
        """Breadth first: where to go on when a character does not fit, and which stop strings end there too."""
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for char, child in self._next[state].items():
                self._fail[child] = self._step(self._fail[state], char)
                self._ends[child] = self._ends[child] or self._ends[self._fail[child]]
                queue.append(child)

    def _step(self, state: int, char: str) -> int:
        while state and char not in self._next[state]:
            state = self._fail[state]
        return self._next[state].get(char, 0)

    def push(self, text: str) -> TextDelta:
        """Add ``text``; returns what is safe to show."""
        state = self._state
        for i, char in enumerate(text):
            state = self._step(state, char)
            found = self._ends[state]
            if found is not None:
                seen = self._held + text[: i + 1]
                self._held = ""
                return TextDelta(seen[: len(seen) - len(found)], found)
        self._state = state
        seen = self._held + text
        safe = len(seen) - self._depth[state]
        self._held = seen[safe:]
        return TextDelta(seen[:safe], None)

    def flush(self) -> str:
        """What was held back: no stop string came of it."""
        held, self._held, self._state = self._held, "", 0
        return held


class TextStream:
    """The text of one sequence, token by token.

    The deltas and the flush, joined, are what ``tokenizer.decode`` gives for all ids at once (up to the stop string).
    Bytes of an unfinished character (at most three) wait for the next token; bytes that cannot become a character are shown
    as U+FFFD at once.

    Args:
        stop: strings that end the text; the text excludes them.
        skip_special_tokens: leave control tokens out of the text.
        shown: those that are shown all the same.

    Raises:
        RequestError: an empty stop string.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: tuple[str, ...] = (),
        *,
        skip_special_tokens: bool = True,
        shown: frozenset[int] = frozenset(),
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special_tokens
        self._shown = shown
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._matcher = StopMatcher(stop) if stop else None
        self._first = True
        self._to_strip = tokenizer.rule.strip_count
        self._stopped_by: str | None = None

    def push(self, token: int) -> TextDelta:
        """Add one token.  After a stop string was found every delta is empty and names it."""
        if self._stopped_by is not None:
            return TextDelta("", self._stopped_by)
        if self._skip_special and self._tokenizer.is_special(token) and token not in self._shown:
            return _NOTHING
        text = self._strip(self._utf8.decode(self._token_bytes(token)))
        if self._matcher is None or not text:
            return TextDelta(text, None)
        delta = self._matcher.push(text)
        self._stopped_by = delta.stopped_by
        return delta

    def flush(self) -> str:
        """What is still held back; a character that was cut off becomes one U+FFFD."""
        if self._stopped_by is not None:
            return ""
        text = self._strip(self._utf8.decode(b"", final=True))
        if self._matcher is None:
            return text
        delta = self._matcher.push(text)
        self._stopped_by = delta.stopped_by
        return delta.text if delta.stopped_by is not None else delta.text + self._matcher.flush()

    def _token_bytes(self, token: int) -> bytes:
        if not (self._first and self._tokenizer.rule.depends_on_first):
            return self._tokenizer.token_bytes(token)
        self._first = not self._tokenizer.is_known(token)
        return self._tokenizer.piece_bytes(token, first=True)

    def _strip(self, text: str) -> str:
        """Drop the space that the tokenizer put in front of the whole text."""
        if not self._to_strip or not text:
            return text
        stripped = strip_length(text, self._tokenizer.rule.strip, self._to_strip)
        self._to_strip = self._to_strip - stripped if stripped == len(text) else 0
        return text[stripped:]
