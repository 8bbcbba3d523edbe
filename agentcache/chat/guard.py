"""Keeps text that users and tools typed from becoming control tokens.

Before rendering, every control-token string in the input (and every piece of one that could be completed by what the
template writes around it) is replaced by a single private-use character that occurs nowhere in the input.  After rendering,
the control-token strings that are left are the template's own.  They get their aliases (see ``controls``), the characters
get their text back, and the twin tokenizer makes control tokens of the aliases alone::

    input      "say <|im_end|>"
    guarded    "say X"                                              X: a free private-use character
    rendered   "<|im_start|>user\\nsay X<|im_end|>\\n"
    aliased    "ALIAS1user\\nsay <|im_end|>ALIAS2\\n"                 -> token ids, offsets into it
    final      "<|im_start|>user\\nsay <|im_end|><|im_end|>\\n"      -> offsets mapped to it

A private-use character that a user types is never chosen, and so stays what it is.  Inputs without any of this (nearly all)
are only searched.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentcache.chat.controls import control_pattern
from agentcache.chat.messages import ROLES
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import ChatTemplateError

_FREE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
"""The private-use areas of Unicode."""
_ESCAPE = re.compile(r"\\u[0-9a-f]{4}")
"""One unit of a character as JSON escapes it."""


@dataclass(frozen=True)
class Segment:
    """A part of the aliased text and where it stands in the final text; all but aliases are of equal length."""

    aliased: int
    final: int
    is_alias: bool


@dataclass(frozen=True)
class GuardedText:
    """A rendered text with everything typed back in place.

    ``aliased`` is ``None`` when nothing had to be guarded: the text can be tokenised as it is.
    """

    text: str
    aliased: str | None = None
    segments: list[Segment] = field(default_factory=list)

    def offsets(self, aliased: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Offsets into ``aliased`` as offsets into ``text``."""
        starts = [segment.aliased for segment in self.segments]

        def place(position: int) -> int:
            segment = self.segments[bisect_right(starts, position) - 1]
            inside = position - segment.aliased
            return segment.final if segment.is_alias else segment.final + inside

        return [(place(start), place(end)) for start, end in aliased]


class ControlGuard:
    """Finds and guards what could become a control token of ``tokenizer``.

    Args:
        taken: text whose private-use characters must not be used (the template's source).
    """

    def __init__(self, tokenizer: Tokenizer, taken: str = "") -> None:
        controls = sorted(set(tokenizer.control_tokens) - set(ROLES) - {""})
        self._tokenizer = tokenizer
        self._taken = taken
        self._pattern = control_pattern(controls)
        fenced = [text for text in controls if not text[0].isalnum() and not text[-1].isalnum()]
        self._longest = max(map(len, fenced), default=0)
        self._beginnings = frozenset(text[:i] for text in fenced for i in range(2, len(text)))
        self._endings = frozenset(text[i:] for text in fenced for i in range(1, len(text) - 1))
        self._firsts = tuple(sorted({text[0] for text in fenced}))
        self._lasts = tuple(sorted({text[-1] for text in fenced}))
        self._all = "\n".join(fenced)

    def guard(self, value: Any) -> tuple[Any, dict[str, str]]:
        """``value`` (of JSON's types) with private-use characters in place, and character -> text it stands for.

        When nothing has to be guarded, ``value`` itself and an empty mapping; when only the tokenizer's normaliser would
        spell a control token, ``value`` and a mapping that stands for nothing.
        """
        if self._pattern is None:
            return value, {}
        strings = list(_strings(value))
        joined = "\n".join(strings)
        if (
            not self._pattern.search(joined)
            and not any(map(self._crosses, strings))
            and not self._normalizes_to(joined)
        ):
            return value, {}
        placeholders = _Placeholders(joined + self._taken)
        return self._replace(value, placeholders), placeholders.texts()

    def restore(self, rendered: str, texts: Mapping[str, str]) -> GuardedText:
        """``rendered`` with the guarded text back in place; ``texts`` is what ``guard`` gave."""
        if not texts or self._pattern is None:
            return GuardedText(rendered)
        spelled = {form: text for char, text in texts.items() for form in (char, _escaped(char))}
        pattern = re.compile("|".join([*map(re.escape, spelled), self._pattern.pattern]))
        aliases = self._tokenizer.literal.aliases
        aliased, final, segments = _Text(), _Text(), []
        done = 0

        def add(aliased_text: str, final_text: str, is_alias: bool) -> None:
            if aliased_text:
                segments.append(Segment(aliased.length, final.length, is_alias))
                aliased.add(aliased_text)
                final.add(final_text)

        for found in pattern.finditer(rendered):
            add(rendered[done : found.start()], rendered[done : found.start()], False)
            if found[0] in spelled:
                add(spelled[found[0]], spelled[found[0]], False)
            else:
                add(aliases[found[0]], found[0], True)
            done = found.end()
        add(rendered[done:], rendered[done:], False)
        segments.append(Segment(aliased.length, final.length, False))
        return GuardedText(final.joined(), aliased.joined(), segments)

    def _normalizes_to(self, text: str) -> bool:
        """Whether the tokenizer's normaliser makes a control token out of something in ``text``."""
        if self._pattern is None or not self._tokenizer.normalizes_controls:
            return False
        return self._pattern.search(self._tokenizer.normalized(text)) is not None

    def _crosses(self, text: str) -> bool:
        return bool(self._ending(text) or self._beginning(text) or self._is_inside(text))

    def _ending(self, text: str) -> int:
        """Length of the control token's beginning that ``text`` ends with, or 0."""
        tail = text[1 - self._longest :]
        for first in self._firsts:
            at = tail.find(first)
            while at >= 0:
                if tail[at:] in self._beginnings:
                    return len(tail) - at
                at = tail.find(first, at + 1)
        return 0

    def _beginning(self, text: str) -> int:
        """Length of the control token's ending that ``text`` begins with, or 0."""
        head = text[: self._longest - 1]
        for last in self._lasts:
            at = head.rfind(last)
            while at >= 0:
                if head[: at + 1] in self._endings:
                    return at + 1
                at = head.rfind(last, 0, at)
        return 0

    def _is_inside(self, text: str) -> bool:
        """Whether all of ``text`` is a piece out of the middle of a control token, and no mere word."""
        return 1 < len(text) < self._longest and not text.replace("_", "a").isalnum() and text in self._all

    def _replace(self, value: Any, placeholders: _Placeholders) -> Any:
        if isinstance(value, str):
            return self._replace_text(value, placeholders)
        if isinstance(value, Mapping):
            return {self._replace(key, placeholders): self._replace(item, placeholders) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._replace(item, placeholders) for item in value]
        return value

    def _replace_text(self, text: str, placeholders: _Placeholders) -> str:
        if self._is_inside(text):
            return placeholders.char_for(text)
        assert self._pattern is not None
        text = self._pattern.sub(lambda found: placeholders.char_for(found[0]), text)
        if length := self._ending(text):
            text = text[:-length] + placeholders.char_for(text[-length:])
        if length := self._beginning(text):
            text = placeholders.char_for(text[:length]) + text[length:]
        return text


class _Placeholders:
    """Hands out private-use characters that do not occur in ``taken``, as they are or as JSON escapes them."""

    def __init__(self, taken: str) -> None:
        self._taken = set(taken)
        self._taken_units = set(_ESCAPE.findall(taken))
        self._candidates = (chr(code) for area in _FREE for code in area)
        self._chars: dict[str, str] = {}
        self._spare = self._next()

    def char_for(self, text: str) -> str:
        if text not in self._chars:
            self._chars[text] = self._next()
        return self._chars[text]

    def texts(self) -> dict[str, str]:
        """Character -> text; with one that stands for itself, so that it is never empty."""
        return {char: text for text, char in self._chars.items()} | {self._spare: self._spare}

    def _next(self) -> str:
        for char in self._candidates:
            if char not in self._taken and not self._taken_units.issuperset(_ESCAPE.findall(_escaped(char))):
                return char
        raise ChatTemplateError(
            "messages: got text that uses every private-use character of Unicode together with control tokens, "
            "expected at least one of them unused",
            "messages",
            "invalid_value",
        )


class _Text:
    """Text that is put together from pieces."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.length = 0

    def add(self, part: str) -> None:
        self._parts.append(part)
        self.length += len(part)

    def joined(self) -> str:
        return "".join(self._parts)


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1]


def _strings(value: Any) -> Iterator[str]:
    """Every string in ``value``, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                yield key
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)
