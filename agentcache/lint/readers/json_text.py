"""JSON that is read as it comes: values one after another, and the way to the lists that hold them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from agentcache.lint.readers.blocks import LIMIT, SKIPPED, InputError

TOO_LONG = f"longer than {LIMIT // 2**20} MiB, which no request is"
_SPACE = re.compile(rb"[ \t\r\n]*")
_STRUCTURE = re.compile(rb'["\[\]{}]')
_SCALAR_END = re.compile(rb"[ \t\r\n,:\]}]")
_OPENING, _QUOTE, _BACKSLASH = b"[{", ord('"'), ord("\\")


class Fault(NamedTuple):
    """Why bytes are no JSON."""

    reason: str


class Raw(NamedTuple):
    """One value as it stands; ``raw`` is ``None`` where it is longer than ``LIMIT``.

    Attributes:
        line: the line that it begins in, from 1.
    """

    line: int
    raw: bytes | None


def parse(raw: bytes | None) -> Any | Fault:
    """The value that ``raw`` is, or why it is none; never raises."""
    if raw is None:
        return Fault(TOO_LONG)
    try:
        return json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Fault(f"not UTF-8: byte {raw[error.start]:#04x} at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        return Fault(f"not valid JSON: {what[0].lower()}{what[1:]} at character {error.pos + 1}")
    except (RecursionError, ValueError) as error:  # nested too deep, or a number with too many digits
        return Fault(f"not readable as JSON: {error}")


class JsonText:
    """A text of JSON values, read forwards; holds one value of it at a time.

    Brackets and quotes are all that it looks at, so what it hands out as a value need not be one.

    ::

        held   ....{"a": [1, 2|          start: where the value began that is being read; nothing before it is needed
                   ^ start    ^ at
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._held = bytearray()
        self._at = 0
        self._start: int | None = None
        self._dropped = 0
        self._cut = False
        self.line = 1

    def peek(self) -> bytes:
        """The next byte that is no white space; empty at the end."""
        while True:
            found = _SPACE.match(self._held, self._at)
            assert found is not None
            end = found.end()
            self.line += self._held.count(b"\n", self._at, end)
            self._at = end
            if self._at < len(self._held):
                return bytes(self._held[self._at : self._at + 1])
            if not self._more():
                return b""

    def take(self, expected: bytes) -> bool:
        """Pass the next byte if it is ``expected``."""
        if self.peek() != expected:
            return False
        self._at += 1
        return True

    def items(self) -> Iterator[Raw]:
        """What is in the list that begins here; it is passed wholly.

        Raises:
            InputError: the list ends behind an item (one that ends in the middle tells it by itself).
        """
        self.take(b"[")
        while byte := self.peek():
            if byte == b"]":
                self._at += 1
                return
            if byte in b",:}":
                self._at += 1
            else:
                yield self.value()
        if not self._cut:
            raise InputError("not valid JSON: the file ends in the middle of a list", self.line)

    def value(self) -> Raw:
        """The value that begins here.

        Raises:
            InputError: it goes on for more than ``SKIPPED`` bytes.
        """
        byte, line = self.peek(), self.line
        self._start, self._dropped = self._at, 0
        if byte in {b"{", b"["}:
            self._cut = not self._pass_brackets()
        elif byte == b'"':
            self._at += 1
            self._cut = not self._pass_string()
        elif byte and self._search(_SCALAR_END, min_length=1) is not None:
            self._at -= 1
        start, self._start = self._start, None
        self.line += self._held.count(b"\n", start, self._at)
        too_long = self._dropped or self._at - start > LIMIT
        return Raw(line, None if too_long else bytes(self._held[start : self._at]))

    def _pass_brackets(self) -> bool:
        """Whether there was the bracket that belongs to the first."""
        depth = 0
        while (mark := self._search(_STRUCTURE)) is not None:
            if mark == _QUOTE:
                self._pass_string()
                continue
            depth += 1 if mark in _OPENING else -1
            if not depth:
                return True
        return False

    def _pass_string(self) -> bool:
        """Whether there was the quote that ends it.  Quotes are looked for alone: texts are full of other escapes."""
        while True:
            place = self._held.find(b'"', self._at)
            end = len(self._held) if place < 0 else place
            escaped = self._backslashes(end) % 2
            if place >= 0:
                self._at = place + 1
                if not escaped:
                    return True
                continue
            self._at = end - escaped  # the first half of an escape waits for the second
            if not self._more():
                self._at = end
                return False

    def _backslashes(self, end: int) -> int:
        """How many stand right before ``end``, behind what was passed."""
        count = 0
        while end - count > self._at and self._held[end - count - 1] == _BACKSLASH:
            count += 1
        return count

    def _search(self, pattern: re.Pattern[bytes], min_length: int = 0) -> int | None:
        """The next byte of ``pattern``, which is passed; not one of the first ``min_length``."""
        self._at += min_length
        while True:
            found = pattern.search(self._held, self._at)
            if found is not None:
                place = found.start()
                self._at = place + 1
                return self._held[place]
            self._at = len(self._held)
            if not self._more():
                return None

    def _more(self) -> bool:
        """Take one block more in, and let go of what nobody needs."""
        keep = self._at if self._start is None else self._start
        if self._start is not None and self._at - self._start > LIMIT:
            self.line += self._held.count(b"\n", self._start, self._at)
            self._dropped += self._at - self._start
            self._start = keep = self._at
            if self._dropped > SKIPPED:
                raise InputError(f"a value of more than {SKIPPED:,} bytes: nothing behind it was read", self.line)
        del self._held[:keep]
        self._at -= keep
        if self._start is not None:
            self._start -= keep
        block = next(self._blocks, None)
        if block is None:
            return False
        self._held += block
        return True
