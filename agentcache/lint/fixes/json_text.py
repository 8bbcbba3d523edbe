"""Where the values of a JSON text stand in it, so that one of them can be changed and all others stay as they were written.

::

    {"a": [1.0, "\\u00e9"], "b": 2}
          ^............^              item ("a",): characters 6 to 21; ("a", 1): 12 to 20
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_BLANKS = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SCALAR = re.compile(r"[^\s,\]}]+")
_UNIT = re.compile(r"\\u([0-9a-fA-F]{4})|\\.|[^\\]", re.DOTALL)


class NotExactError(Exception):
    """A change that cannot be made in the file's own text exactly as it is meant; its sentence says why."""


@dataclass(slots=True)
class Node:
    """A value at characters ``[start, end)``.

    Attributes:
        names: of an object, the characters of each member's name, quotation marks included.
        children: of an object by name, of a list by index, in the order of the text.
    """

    start: int
    end: int = 0
    names: dict[str, tuple[int, int]] = field(default_factory=dict)
    children: dict[str | int, Node] = field(default_factory=dict)


def scan(text: str) -> Node:
    """The places of every value of ``text``, which must be one valid JSON value.

    Raises:
        NotExactError: an object has a name twice, so that a path does not say which one is meant.
    """
    try:
        return _scan(text, _blank_end(text, 0))
    except RecursionError:
        raise NotExactError("the record is nested too deep") from None


def _blank_end(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at


def _scan(text: str, start: int) -> Node:
    first = text[start]
    node = Node(start)
    if first == "{":
        _scan_members(text, node)
    elif first == "[":
        _scan_items(text, node)
    else:
        match = (_STRING if first == '"' else _SCALAR).match(text, start)
        assert match is not None, "valid JSON"
        node.end = match.end()
    return node


def _scan_members(text: str, node: Node) -> None:
    at = _blank_end(text, node.start + 1)
    while text[at] != "}":
        match = _STRING.match(text, at)
        assert match is not None, "valid JSON"
        name = json.loads(match[0])
        if name in node.children:
            raise NotExactError(f"the record has {json.dumps(name)} twice in one object")
        node.names[name] = match.span()
        colon = _blank_end(text, match.end())
        child = node.children[name] = _scan(text, _blank_end(text, colon + 1))
        at = _blank_end(text, child.end)
        if text[at] == ",":
            at = _blank_end(text, at + 1)
    node.end = at + 1


def _scan_items(text: str, node: Node) -> None:
    at = _blank_end(text, node.start + 1)
    while text[at] != "]":
        child = node.children[len(node.children)] = _scan(text, at)
        at = _blank_end(text, child.end)
        if text[at] == ",":
            at = _blank_end(text, at + 1)
    node.end = at + 1


@dataclass(frozen=True, slots=True)
class Style:
    """How a text writes what can be written in several ways.

    Attributes:
        ascii_only: other characters are escaped.
        slashes: so are slashes.
        comma, colon: with the blanks behind them.
    """

    ascii_only: bool
    slashes: bool
    comma: str
    colon: str

    @classmethod
    def of(cls, text: str, root: Node) -> Style:
        """The style of ``text``; what it does not show is Python's."""
        return cls(text.isascii(), "\\/" in text, *_separators(text, root))

    def dump(self, value: Any) -> str:
        """``value`` as the text would write it."""
        text = json.dumps(value, ensure_ascii=self.ascii_only, separators=(self.comma, self.colon))
        if not self.ascii_only:  # half a character has no other way to be written
            text = re.sub(r"[\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)
        return text.replace("/", "\\/") if self.slashes else text

    def replace(self, raw: str, start: int, end: int, content: str) -> str:
        """The string ``raw`` (as written, with its quotation marks) with characters ``[start, end)`` of its value replaced.

        The others stay as they were written, escapes and all.
        """
        offsets = [*_offsets(raw[1:-1]), len(raw) - 2]
        body = raw[1:-1]
        return f'"{body[: offsets[start]]}{self.dump(content)[1:-1]}{body[offsets[end] :]}"'


def _offsets(body: str) -> Iterator[int]:
    """Where each character of a string's value begins in its text."""
    high = False
    for match in _UNIT.finditer(body):
        unit = int(match[1], 16) if match[1] else 0
        if not (high and 0xDC00 <= unit < 0xE000):  # the second half belongs to the character before
            yield match.start()
            high = 0xD800 <= unit < 0xDC00
        else:
            high = False


def _separators(text: str, root: Node) -> tuple[str, str]:
    """The first comma and the first colon of the text, with what stands around them; Python's where it has none."""
    several = next((node for node in _walk(root) if len(node.children) > 1), None)
    named = next((node for node in _walk(root) if node.names), None)
    comma, colon = ", ", ": "
    if several is not None:
        first, second = list(several.children)[:2]
        comma = text[several.children[first].end : begin_of(several, second)]
    if named is not None:
        name, span = next(iter(named.names.items()))
        colon = text[span[1] : named.children[name].start]
    return comma, colon


def begin_of(node: Node, key: str | int) -> int:
    """Where a child begins: an object's with its name."""
    return node.names[key][0] if isinstance(key, str) else node.children[key].start


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children.values():
        yield from _walk(child)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON text would show it: ``1``, ``1.0`` and ``true`` differ, and so do members in another order."""
    if one is other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return list(one) == list(other) and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) is not type(other):
        return False
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)


def same_value(one: Any, other: Any) -> bool:
    """Equal as JSON values: members in any order, ``1`` and ``1.0`` alike, but not ``true``."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_value(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)
