"""The same items in another order, in a text or in a tool's schema."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from agentcache.chat.text import common_length
from agentcache.lint.texts.spans import common_suffix

_MOST_LINES = 500
_BULLET = re.compile(r"^\s*(?:[-*•+]|\d+[.)])?\s*")
_SEPARATORS = (",", ";", "|")
_OPENING, _CLOSING = ":[({=", "])}."
_EDGES = " \t\"'`"


class Reordered(NamedTuple):
    """Characters ``[start, before_end)`` and ``[start, after_end)`` hold the same items in another order."""

    start: int
    before_end: int
    after_end: int


def find_reordered(before: str, after: str, at: int, line_end: str = "\n") -> Reordered | None:
    """The list in which two strings differ at ``at``, when it holds the same items in both: in a line, or a line each."""
    place = after.rfind(line_end, 0, at)
    start = 0 if place < 0 else place + len(line_end)
    was, now = _line(before, start, line_end), _line(after, start, line_end)
    for separator in _SEPARATORS:
        if was.count(separator) > 1 and was.count(separator) == now.count(separator):
            for begin, rest in _middles(was, now, separator):
                mine, theirs = (_items(line[begin : len(line) - rest], separator) for line in (was, now))
                if len(mine) > 1 and mine != theirs and sorted(mine) == sorted(theirs):
                    return Reordered(start + begin, start + len(was) - rest, start + len(now) - rest)
    return _reordered_lines(before, after, start, line_end)


def _middles(was: str, now: str, separator: str) -> Iterator[tuple[int, int]]:
    """What differs of two lines, in whole words and in whole items: how much is equal before and behind it."""
    head = common_length(was, now)
    tail = common_suffix(was[head:], now[head:])
    word = re.search(r"[^\s,;|]*\Z", was[:head])
    word_end = re.match(r"(?:[^\s,;|.\])}]|\.(?=\w))*", was[len(was) - tail :])
    yield head - len(word[0] if word else ""), tail - len(word_end[0] if word_end else "")
    item = max(was.rfind(mark, 0, head) for mark in (separator, *_OPENING)) + 1
    ends = [place for mark in (separator, *_CLOSING) if (place := was.find(mark, len(was) - tail)) >= 0]
    yield item, len(was) - min(ends, default=len(was))


def _items(text: str, separator: str) -> list[str]:
    return [item.strip(_EDGES) for item in text.split(separator)]


def _reordered_lines(before: str, after: str, start: int, line_end: str) -> Reordered | None:
    """The lines from ``start`` to the last one of a paragraph that changed its place, if they are the same lines."""
    mine = before[start:].split(line_end, _MOST_LINES)[:_MOST_LINES]
    theirs = after[start:].split(line_end, _MOST_LINES)[:_MOST_LINES]
    missing: Counter[str] = Counter()
    unlike, changed = 0, False
    found, ends = None, (start, start)
    for was, now in zip(mine, theirs, strict=False):
        if found is not None and not was.strip():
            break
        changed = changed or was != now
        for sign, line in ((1, was), (-1, now)):
            key = _BULLET.sub("", line).strip(" \t,;")
            old = missing[key]
            missing[key] = old + sign
            unlike += (old + sign != 0) - (old != 0)
        ends = (ends[0] + len(was) + len(line_end), ends[1] + len(now) + len(line_end))
        if changed and not unlike:
            found, changed = Reordered(start, ends[0] - len(line_end), ends[1] - len(line_end)), False
    return found if found is not None and line_end in before[start : found.before_end] else None


def _line(text: str, start: int, line_end: str) -> str:
    place = text.find(line_end, start)
    return text[start:] if place < 0 else text[start:place]
