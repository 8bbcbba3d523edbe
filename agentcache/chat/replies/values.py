"""Where a JSON value ends, in text that arrives in pieces; and JSON strings that hold JSON.

Nothing is validated: whatever a model wrote is handed on as it is, and each character is looked at once.
"""

from __future__ import annotations

import enum
import json
import re

from agentcache.chat.text import without_surrogates


class Scan(enum.Enum):
    """How far a value has been read."""

    MORE = "it goes on"
    DONE = "it is complete"
    CLOSED = "the marker that ends the whole call stands here"


class ValueScanner:
    """Follows one value, of any kind, to its end.

    Args:
        closing: a marker that ends the call even where the value is not complete.  Inside a string it does so only at the
            start of a line, since a JSON string cannot hold a line break but may well hold the marker.
    """

    def __init__(self, closing: str | None = None) -> None:
        self._closing = closing
        first = re.escape(closing[0]) if closing else ""
        self._outside = re.compile(rf'["{{}}\[\]{first}]')
        self._inside = re.compile(r'["\\\n]' if closing else r'["\\]')
        self._scalar = re.compile(rf"[,}}\]{first}]")
        self._depth = 0
        self._kind = ""
        self._in_string = False
        self._escaped = False

    def scan(self, text: str, start: int) -> tuple[int, Scan]:
        """Read on at ``text[start]``; the first character ever read is the first of the value.

        Returns:
            Where the value's text ends for now, and why.  With ``MORE`` what follows that place, if anything, has to be
            shown again when more of it is known.
        """
        if start == len(text):
            return start, Scan.MORE
        if not self._kind:
            self._kind = text[start] if text[start] in '"{[' else "scalar"
        if self._kind == "scalar":
            return self._scan_scalar(text, start)
        position = start
        while position < len(text):
            if self._in_string:
                position, status = self._scan_string(text, position)
            else:
                position, status = self._scan_structure(text, position)
            if status is not None:
                return position, status
        return position, Scan.MORE

    def _scan_string(self, text: str, position: int) -> tuple[int, Scan | None]:
        if self._escaped:
            self._escaped = False
            return position + 1, None
        match = self._inside.search(text, position)
        if match is None:
            return len(text), None
        position = match.start()
        char = text[position]
        if char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False
            return position + 1, Scan.DONE if self._depth == 0 else None
        else:
            marker = starts(text, position + 1, self._closing or "")
            if marker is not False:
                return position, Scan.MORE if marker is None else Scan.CLOSED
        return position + 1, None

    def _scan_structure(self, text: str, position: int) -> tuple[int, Scan | None]:
        match = self._outside.search(text, position)
        if match is None:
            return len(text), None
        position = match.start()
        marker = self._closing_at(text, position)
        if marker is not False:
            return position, Scan.MORE if marker is None else Scan.CLOSED
        char = text[position]
        if char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            if self._depth == 0:
                return position + 1, Scan.DONE
        return position + 1, None

    def _scan_scalar(self, text: str, position: int) -> tuple[int, Scan]:
        while (match := self._scalar.search(text, position)) is not None:
            position = match.start()
            marker = self._closing_at(text, position)
            if marker is not False:
                return position, Scan.MORE if marker is None else Scan.CLOSED
            if text[position] in ",}]":
                return position, Scan.DONE
            position += 1
        return len(text), Scan.MORE

    def _closing_at(self, text: str, position: int) -> bool | None:
        return starts(text, position, self._closing) if self._closing else False


def starts(text: str, position: int, marker: str) -> bool | None:
    """Whether ``marker`` stands at ``position``; ``None``: the text ends before that can be told."""
    if text.startswith(marker, position):
        return True
    return None if marker.startswith(text[position : position + len(marker)]) else False


_UNIT = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[\"\\/bfnrt]",
)
_UNFINISHED = re.compile(
    r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?)?)?\Z"
)


class StringDecoder:
    """The text that the inside of a JSON string stands for, piece by piece.  Escapes that do not exist stay as they are."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        """More of what stands between the quotes."""
        text = self._held + text
        end = _unfinished_escape(text)
        self._held = text[end:]
        return _decode(text[:end])

    def flush(self) -> str:
        """An escape that was cut off."""
        held, self._held = self._held, ""
        return _decode(held)


def _unfinished_escape(text: str) -> int:
    """Where an escape begins that may go on beyond the end of ``text``."""
    match = _UNFINISHED.search(text, max(0, len(text) - 11))
    while match is not None:
        backslashes = match.start() - len(text[: match.start()].rstrip("\\"))
        if backslashes % 2 == 0:
            return match.start()
        match = _UNFINISHED.search(text, match.start() + 1)
    return len(text)


def _decode(text: str) -> str:
    return _UNIT.sub(lambda match: without_surrogates(json.loads(f'"{match.group()}"')), text)


def string_value(text: str) -> str | None:
    """The text of a whole JSON string, quotes included; ``None``: it is none."""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return without_surrogates(value) if isinstance(value, str) else None
