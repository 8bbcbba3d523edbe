"""The input of a tool call on its way to a client that parses it as it comes.

Models write arguments as text, and text can be cut (``max_tokens``) or be no JSON at all.  Clients parse every beginning of
the input and give up on the whole message when they cannot.  So what goes out is always the beginning of one JSON object,
and is completed where the text ends or stops being JSON::

    written    {"path": "a.py", "lines": [1, 2      |      {"path": "a.py" oops
    sent       {"path": "a.py", "lines": [1, 2]}    |      {"path": "a.py"}

A key goes out together with the beginning of its value, a number or a word when it is whole.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

_SPACE = re.compile(r"[ \t\n\r]+")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_WORD = re.compile(r"[-+.0-9A-Za-z]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_LITERALS = frozenset({"true", "false", "null"})
_MAX_DEPTH = 50
"""So that a body that holds the call is not too deep when the client sends it back."""
_LONGEST_NUMBER = 300
_REPLACEMENT = "\\ufffd"


def as_object(arguments: str) -> str:
    """``arguments`` as a client gets them: always one JSON object."""
    call = CallInput()
    return call.push(arguments) + call.end()


class CallInput:
    """Reads the arguments of one call, in any chunking."""

    def __init__(self) -> None:
        self._state: Callable[[str, int], int] = self._open
        self._text = ""
        self._out: list[str] = []
        self._held: list[str] = []
        """What may not go out yet: a comma, a key, a colon, a number."""
        self._closers: list[str] = []
        self._in_key = False
        self._in_value = False
        self._word = ""
        self._lead = ""
        """The first half of a surrogate pair, as it was escaped."""
        self._sent = False
        self._over = False

    def push(self, text: str) -> str:
        """More of the arguments; what can go out now."""
        self._text += text
        at = 0
        while at < len(self._text) and not self._over:
            moved = self._state(self._text, at)
            if moved == at:
                break
            at = moved
        self._text = "" if self._over else self._text[at:]
        return self._take()

    def end(self) -> str:
        """No more of them; what completes the object."""
        if not self._over and self._word:
            self._end_word()
        if not self._over and self._in_value and not self._in_key:
            self._lone()
            self._out.append('"')
        self._over = True
        self._out += reversed(self._closers)
        self._closers = []
        return self._take() or ("" if self._sent else "{}")

    def _take(self) -> str:
        text = "".join(self._out)
        self._out = []
        self._sent = self._sent or bool(text)
        return text

    def _stop(self) -> None:
        """From here on it is no JSON."""
        if self._in_value and not self._in_key:
            self._out.append('"')
        self._over = True

    def _write(self, text: str) -> None:
        (self._held if self._in_key else self._out).append(text)

    def _release(self) -> None:
        self._out += self._held
        self._held = []

    # -- states: each reads at a place and returns where it stopped

    def _open(self, text: str, at: int) -> int:
        if space := _SPACE.match(text, at):
            return space.end()
        if text[at] != "{":
            self._stop()
        else:
            self._begin(text[at])
        return at + 1

    def _begin(self, bracket: str) -> None:
        if len(self._closers) >= _MAX_DEPTH:
            self._stop()
            return
        self._release()
        self._out.append(bracket)
        self._closers.append("}" if bracket == "{" else "]")
        self._state = self._first

    def _first(self, text: str, at: int) -> int:
        """Behind an opening bracket."""
        if text[at] == self._closers[-1]:
            return self._close(at)
        return self._key(text, at) if self._closers[-1] == "}" else self._value(text, at)

    def _close(self, at: int) -> int:
        self._release()
        self._out.append(self._closers.pop())
        self._state = self._after
        self._over = not self._closers
        return at + 1

    def _key(self, text: str, at: int) -> int:
        if space := self._skipped(text, at):
            return space
        if text[at] != '"':
            self._stop()
            return at + 1
        self._in_key = self._in_value = True
        self._write('"')
        self._state = self._string
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        if space := self._skipped(text, at):
            return space
        if text[at] != ":":
            self._stop()
        self._held.append(":")
        self._state = self._value
        return at + 1

    def _value(self, text: str, at: int) -> int:
        if space := self._skipped(text, at):
            return space
        if text[at] in "{[":
            self._begin(text[at])
        elif text[at] == '"':
            self._release()
            self._in_value = True
            self._write('"')
            self._state = self._string
        elif _WORD.match(text, at):
            self._state = self._read_word
            return self._read_word(text, at)
        else:
            self._stop()
        return at + 1

    def _after(self, text: str, at: int) -> int:
        """Behind a value."""
        if space := self._skipped(text, at):
            return space
        if text[at] == self._closers[-1]:
            return self._close(at)
        if text[at] != ",":
            self._stop()
            return at + 1
        self._held.append(",")
        self._state = self._key if self._closers[-1] == "}" else self._value
        return at + 1

    def _skipped(self, text: str, at: int) -> int:
        space = _SPACE.match(text, at)
        if space is None:
            return 0
        self._held.append(space.group())
        return space.end()

    def _read_word(self, text: str, at: int) -> int:
        found = _WORD.match(text, at)
        if found is not None:
            self._word += found.group()
            return found.end()
        self._end_word()
        return self._after(text, at) if not self._over else at + 1

    def _end_word(self) -> None:
        word, self._word = self._word, ""
        if word not in _LITERALS and not _is_number(word):
            self._stop()
            return
        self._release()
        self._out.append(word)
        self._state = self._after

    def _string(self, text: str, at: int) -> int:
        if text[at] == "\\":
            return self._escape(text, at)
        self._lone()
        if plain := _PLAIN.match(text, at):
            self._write(plain.group())
            return plain.end()
        if text[at] != '"':  # a raw control character
            self._write(json.dumps(text[at])[1:-1])
            return at + 1
        self._write('"')
        self._state = self._colon if self._in_key else self._after
        self._in_key = self._in_value = False
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        if at + 1 == len(text):
            return at
        if text[at + 1] != "u":
            self._lone()
            if text[at + 1] not in '"\\/bfnrt':
                self._stop()
            else:
                self._write(text[at : at + 2])
            return at + 2
        if len(text) < at + 6:
            return at
        if _HEX.fullmatch(text, at + 2, at + 6) is None:
            self._lone()
            self._stop()
            return at + 6
        self._unit(text[at : at + 6])
        return at + 6

    def _unit(self, escaped: str) -> None:
        """A UTF-16 unit; halves of a pair go out together, one alone is no character."""
        unit = int(escaped[2:], 16)
        if 0xDC00 <= unit < 0xE000:
            lead, self._lead = self._lead, ""
            self._write(lead + escaped if lead else _REPLACEMENT)
            return
        self._lone()
        if 0xD800 <= unit < 0xDC00:
            self._lead = escaped
        else:
            self._write(escaped)

    def _lone(self) -> None:
        if self._lead:
            self._lead = ""
            self._write(_REPLACEMENT)


def _is_number(word: str) -> bool:
    return (
        len(word) <= _LONGEST_NUMBER and _NUMBER.fullmatch(word) is not None and math.isfinite(float(word))
    )  # fmt: skip
