"""One call, written as a JSON object, read as it comes.

::

    {"name": "read", "arguments": {"path": "a.py"}}
    ^ held until the name is known                 the text of the arguments goes out as it comes

The keys may stand in any order, with others beside them; arguments that come before the name wait for it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable

from agentcache.chat.replies.output import Output
from agentcache.chat.replies.values import Scan, StringDecoder, ValueScanner, starts, string_value

_FUNCTION = "function"
_NAMES = frozenset({"name", _FUNCTION})
_ARGUMENTS = frozenset({"arguments", "parameters"})
_FIRST_KEYS = _NAMES | _ARGUMENTS | {"type", "id"}
_SPACE = re.compile(r"\s+")
_SEPARATORS = re.compile(r"[\s,]+")


class Outcome(enum.Enum):
    """What became of an object."""

    MORE = "it goes on"
    CALL = "it was a call, and is over"
    TEXT = "it is no call; what was held back is text"


class ArgumentsText:
    """The arguments of one call as they go out.

    An object goes out as the model wrote it, and so does whatever else is neither of these two: ``null`` and an empty string,
    which stand for no arguments (``{}``), and a string that holds an object, which goes out as the object.
    """

    _HOLDS_OBJECT = re.compile(r'"(?:\s|\\[nrt])*\{')
    _MAY_HOLD_OBJECT = re.compile(r'"(?:\s|\\[nrt]?)*\Z')
    _EMPTY = re.compile(r'(?:null|"(?:\s|\\[nrt])*")?\Z')

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self._take = self._begin
        self._held: list[str] = []
        self._decoder = StringDecoder()
        self._quote = ""

    def push(self, text: str) -> None:
        """More of the value's text."""
        if text:
            self._take(text)

    def end(self, *, complete: bool) -> None:
        """No more of it.  What was cut off stays as far as it goes."""
        text = "".join(self._held)
        if self._take == self._pass:
            return
        if self._take == self._decode:
            self._send(self._decoder.flush())
        elif complete and self._EMPTY.match(text.strip()):
            self._send("{}")
        else:
            self._send(text.rstrip() if complete else text)
        self._held = []

    def _begin(self, text: str) -> None:
        if text[0] == '"':
            self._take = self._decide
        else:
            self._take = self._pass if text[0] in "{[" else self._hold
        self._take(text)

    def _pass(self, text: str) -> None:
        self._send(text)

    def _hold(self, text: str) -> None:
        self._held.append(text)

    def _decide(self, text: str) -> None:
        """Whether this string holds an object.  White space before that is short, or it does not."""
        text = "".join(self._held) + text
        if self._HOLDS_OBJECT.match(text, 0, 64):
            self._held, self._take = [], self._decode
            self._decode(text[1:])
        elif len(text) < 64 and (self._MAY_HOLD_OBJECT.match(text) or self._EMPTY.match(text)):
            self._held = [text]
        else:
            self._held, self._take = [], self._pass
            self._send(text)

    def _decode(self, text: str) -> None:
        """The quote at the end is none of the object's characters; it is the last of the value, unless there is more."""
        text = self._quote + text
        self._quote = '"' if text.endswith('"') else ""
        self._send(self._decoder.push(text[: len(text) - len(self._quote)]))


class CallObject:
    """Reads one object.

    Args:
        out: where the call goes.
        known: the names that make it a call; ``None``: any name does.  With known names an object is given up as soon as it
            cannot be a call, so that JSON that is a reply in itself is not held back.
        closing: a marker that ends the call; see ``ValueScanner``.
    """

    def __init__(self, out: Output, *, known: frozenset[str] | None = None, closing: str | None = None) -> None:
        self._out = out
        self._known = known
        self._closing = closing
        self._state: Callable[[str, int], int | None] = self._open
        self._outcome = Outcome.MORE
        self._held = ""
        self._raw: list[str] = []
        self._index: int | None = None
        self._depth = 0
        self._first_key = True
        self._key = ""
        self._scanner = ValueScanner(closing)
        self._value: list[str] = []
        self._arguments: ArgumentsText | None = None
        self._in_arguments = False
        self._early: list[str] = []
        """Arguments that came before the name."""

    @property
    def raw(self) -> str:
        """What was read of an object that is no call (so far)."""
        return "".join(self._raw)

    def push(self, text: str) -> tuple[Outcome, str]:
        """Read on; the first character ever read is ``{``.

        Returns:
            What became of it, and the text that follows it.
        """
        if self._held:
            text = self._held + text
        position: int = 0
        while position < len(text) and self._outcome is Outcome.MORE:
            step = self._state(text, position)
            if step is None:
                break
            position = step
        if self._index is None:
            self._raw.append(text[:position])
        rest = text[position:]
        if self._outcome is Outcome.MORE:
            self._held = rest
            return Outcome.MORE, ""
        self._held = ""
        return self._outcome, rest

    def flush(self) -> Outcome:
        """The reply ends here: a call, as far as it goes, or text."""
        if self._outcome is Outcome.MORE:
            if self._index is None:
                self._raw.append(self._held)
            elif self._in_arguments and self._arguments is not None:
                self._arguments.push(self._held)
            self._end(cut=True)
        return self._outcome

    # -- states: each takes the text and a place in it, and returns the place up to which it read; None: it needs more

    def _open(self, text: str, position: int) -> int | None:
        self._depth = 1
        self._state = self._before_key
        return position + 1

    def _before_key(self, text: str, position: int) -> int | None:
        char = text[position]
        if char.isspace() or char == ",":
            return self._skip(_SEPARATORS, text, position)
        if char == '"':
            self._scanner, self._value = ValueScanner(self._closing), []
            self._state = self._read_key
            return position
        if char == "}":
            self._depth -= 1
            if self._depth == 0:
                self._end()
            return position + 1
        return self._unexpected(text, position)

    def _read_key(self, text: str, position: int) -> int | None:
        end, status = self._scanner.scan(text, position)
        self._value.append(text[position:end])
        if status is Scan.MORE:
            return end if end > position else None
        if status is Scan.CLOSED:
            self._end()
            return end
        key = "".join(self._value)
        self._key = string_value(key) or key
        self._state = self._before_colon
        if self._first_key and self._known is not None and self._key not in _FIRST_KEYS:
            self._give_up()
        self._first_key = False
        return end

    def _before_colon(self, text: str, position: int) -> int | None:
        char = text[position]
        if char.isspace():
            return self._skip(_SPACE, text, position)
        if char == ":":
            self._state = self._before_value
            return position + 1
        self._state = self._before_key
        return self._unexpected(text, position)

    def _before_value(self, text: str, position: int) -> int | None:
        char = text[position]
        if char.isspace():
            return self._skip(_SPACE, text, position)
        if char == "{" and self._key == _FUNCTION and self._depth == 1:
            self._depth = 2
            self._state = self._before_key
            return position + 1
        self._scanner, self._value = ValueScanner(self._closing), []
        self._in_arguments = self._key in _ARGUMENTS and self._arguments is None
        if self._in_arguments:
            self._arguments = ArgumentsText(self._send)
        self._state = self._read_value
        return position

    def _read_value(self, text: str, position: int) -> int | None:
        end, status = self._scanner.scan(text, position)
        if end > position:
            if self._in_arguments and self._arguments is not None:
                self._arguments.push(text[position:end])
            elif self._key in _NAMES:
                self._value.append(text[position:end])
        if status is Scan.MORE:
            return end if end > position else None
        if status is Scan.CLOSED:
            self._end()
            return end
        self._state = self._before_key
        if self._in_arguments and self._arguments is not None:
            self._arguments.end(complete=True)
            self._in_arguments = False
        elif self._key in _NAMES and self._index is None:
            self._name("".join(self._value))
        return end

    # -- what the states find out

    def _name(self, value: str) -> None:
        name = string_value(value)
        if name is not None and (self._known is None or name in self._known):
            self._index = self._out.call(name)
            self._raw = []
            for text in self._early:
                self._out.arguments(self._index, text)
            self._early = []
        elif self._known is not None:
            self._give_up()

    def _send(self, text: str) -> None:
        if self._index is None:
            self._early.append(text)
        else:
            self._out.arguments(self._index, text)

    def _unexpected(self, text: str, position: int) -> int | None:
        """A character that JSON does not have here: the end of the call, or left out of it."""
        marker = starts(text, position, self._closing) if self._closing else False
        if marker is None:
            return None
        if marker:
            self._end()
            return position
        if self._known is not None and self._index is None:
            self._give_up()
        return position + 1

    def _skip(self, pattern: re.Pattern[str], text: str, position: int) -> int:
        match = pattern.match(text, position)
        return position if match is None else match.end()

    def _give_up(self) -> None:
        self._outcome = Outcome.TEXT

    def _end(self, *, cut: bool = False) -> None:
        """The object is over, or the reply is (``cut``)."""
        if self._in_arguments and self._arguments is not None:
            self._arguments.end(complete=not cut)
        if self._index is None:
            self._give_up()
            return
        if self._arguments is None and not cut:
            self._send("{}")
        self._outcome = Outcome.CALL
