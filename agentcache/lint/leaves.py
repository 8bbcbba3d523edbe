"""The strings of a request body, by JSON path: where a rendered prompt took its text from.

A template is a program, so the only sure way to learn where a string went is to send it through with marks on:

::

    content:   "  Be brief. "              -> "  ⟦Be brief.⟧ "        marks inside the blanks, so that trimming still trims
    rendering: "<|im_start|>system\\n⟦Be brief.⟧<|im_end|>\\n…"       the marks say where it is, and are taken out again

A template that looks at the text itself (splits it, compares it) may render marked text otherwise.  Then the text without
the marks differs from the real rendering, and the strings are looked for in order instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from agentcache.chat.text import without_surrogates
from agentcache.lint.records import Body, Keys

_FIRST_MARK = 0xF0000  # private-use plane: no template and no ordinary text has these
_LAST_MARK = 0xFFFFD
_CLOSING = "\U00100000"
_MARKS = re.compile(r"[\U000F0000-\U000FFFFD\U00100000]")
_REASONING = ("reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True, slots=True)
class StringAt:
    """A string of the body that a template may print, and who says it (``system``, ``user``, …; ``tools``, ``prompt``)."""

    keys: Keys
    role: str
    value: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A string of the body at characters ``[start, end)`` of the rendered prompt.

    Attributes:
        keys: keys and indices into the body.
        role: role of its message, or ``tools``; ``prompt`` for a raw prompt.
        skipped: characters of the string before the first one that was rendered (blanks that the template trims).
    """

    keys: Keys
    role: str
    start: int
    end: int
    skipped: int

    @property
    def message(self) -> int | None:
        """Index of its message; ``None`` for a tool or a raw prompt."""
        return self.keys[1] if self.keys[0] == "messages" and isinstance(self.keys[1], int) else None


def strings_of(body: Body) -> Iterator[StringAt]:
    """What a template prints of ``body`` as text: message contents and reasoning, tool names and descriptions."""
    for keys, role, value in _strings_of(body):
        yield StringAt(keys, role, without_surrogates(value))


def _strings_of(body: Body) -> Iterator[tuple[Keys, str, str]]:
    if isinstance(body.get("prompt"), str) and "messages" not in body:
        yield ("prompt",), "prompt", body["prompt"]
    for index, message in enumerate(body.get("messages") or ()):
        role = message["role"]
        for name in _REASONING:
            if isinstance(message.get(name), str):
                yield ("messages", index, name), role, message[name]
                break
        content = message.get("content")
        keys: Keys = ("messages", index, "content")
        if isinstance(content, str):
            yield keys, role, content
        elif isinstance(content, list):
            for part_index, part in enumerate(content):
                if isinstance(part, dict) and isinstance(part.get("text"), str):
                    yield (*keys, part_index, "text"), role, part["text"]
    if isinstance(body.get("prefill"), str):
        yield ("prefill",), "assistant", body["prefill"]
    for index, tool in enumerate(body.get("tools") or ()):
        yield from _tool_strings(tool, ("tools", index))


def _tool_strings(value: Any, keys: Keys) -> Iterator[tuple[Keys, str, str]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if key in ("name", "description") and isinstance(item, str):
            yield (*keys, key), "tools", item
        else:
            yield from _tool_strings(item, (*keys, key))


def replace_at(value: Any, keys: Sequence[str | int], new: Any) -> Any:
    """A copy of ``value`` in which the item at ``keys`` is ``new``; what lies beside the way is shared, not copied."""
    if not keys:
        return new
    copy: Any = list(value) if isinstance(value, list) else dict(value)
    copy[keys[0]] = replace_at(value[keys[0]], keys[1:], new)
    return copy


def string_at(body: Body, keys: Sequence[str | int]) -> str:
    """The string at ``keys``, as it can be printed."""
    value: Any = body
    for key in keys:
        value = value[key]
    return without_surrogates(str(value))


def offset_in(value: str, rendered: str, skipped: int, offset: int) -> int | None:
    """The character of ``value`` that was rendered as character ``offset`` of ``rendered``.

    Tool texts are rendered as JSON, where a quotation mark takes two characters; ``None`` when it was neither copied nor
    written as JSON.
    """
    head = rendered[:offset]
    if value.startswith(head, skipped):
        return skipped + offset
    try:
        plain = json.loads(f'"{head}"')
    except ValueError:
        return None
    return skipped + len(plain) if value.startswith(plain, skipped) else None


def locate(body: Body, text: str, render: Callable[[Body], str]) -> tuple[Leaf, ...]:
    """Where the strings of ``body`` are in ``text``, in the order of the text.

    Args:
        text: the rendered prompt.
        render: renders a body to text in the same way.
    """
    strings = [string for string in strings_of(body) if string.value.strip()]
    if len(strings) <= _LAST_MARK - _FIRST_MARK and not any(_MARKS.search(string.value) for string in strings):
        marked = body
        for number, string in enumerate(strings):
            marked = replace_at(marked, string.keys, _mark(string.value, number))
        rendered = render(marked)
        if _MARKS.sub("", rendered) == text:
            return tuple(sorted(_read_marks(rendered, strings), key=lambda leaf: leaf.start))
    return tuple(sorted(_search(text, strings), key=lambda leaf: leaf.start))


def _mark(value: str, number: int) -> str:
    core = value.strip()
    start = value.index(core)
    return f"{value[:start]}{chr(_FIRST_MARK + number)}{core}{_CLOSING}{value[start + len(core) :]}"


def _read_marks(rendered: str, strings: list[StringAt]) -> Iterator[Leaf]:
    marks = list(_MARKS.finditer(rendered))
    seen: set[int] = set()
    for count, (opening, closing) in enumerate(pairwise(marks)):
        number = ord(opening[0]) - _FIRST_MARK
        if opening[0] == _CLOSING or closing[0] != _CLOSING or number in seen:
            continue
        seen.add(number)
        string = strings[number]
        skipped = string.value.index(string.value.strip())
        # Every mark before a place shifts it by one.
        yield Leaf(string.keys, string.role, opening.start() - count, closing.start() - count - 1, skipped)


def _search(text: str, strings: list[StringAt]) -> Iterator[Leaf]:
    """Message contents one after another; tools anywhere."""
    cursor = 0
    for string in strings:
        core = string.value.strip()
        start = text.find(core, 0 if string.role == "tools" else cursor)
        if start < 0:
            continue
        if string.role != "tools":
            cursor = start + len(core)
        yield Leaf(string.keys, string.role, start, start + len(core), string.value.index(core))
