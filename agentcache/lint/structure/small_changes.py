"""Texts that differ in so little that a rule about texts has the word: a value that is filled in, or another writing."""

from __future__ import annotations

import re
import unicodedata

from agentcache.chat.text import common_length
from agentcache.lint.times import mask_times

_EDGE = re.compile(r"[\s\"'`(){}\[\]<>,;]")
_VALUE = re.compile(r"\d|[A-Fa-f0-9]{4,}|[/\\@]")


def is_small(before: str, after: str) -> bool:
    """The two are one text with another value in one place, or in another writing."""
    return _spelled_apart(before, after) or _filled_in(before, after)


def _spelled_apart(before: str, after: str) -> bool:
    plain = [unicodedata.normalize("NFC", "".join(text.split())) for text in (before, after)]
    return plain[0] == plain[1]


def _filled_in(before: str, after: str) -> bool:
    if mask_times(before) == mask_times(after):
        return True
    start = common_length(before, after)
    room = min(len(before), len(after)) - start
    tail = common_length(before[::-1][:room], after[::-1][:room])
    values = [_widened(text, start, len(text) - tail) for text in (before, after)]
    if any(_EDGE.search(value) for value in values):
        return False
    return all(value and _VALUE.search(value) for value in values) and start + tail > max(map(len, values))


def _widened(text: str, start: int, end: int) -> str:
    """Characters ``[start, end)`` and what stands beside them without a blank between."""
    while start > 0 and not _EDGE.match(text[start - 1]):
        start -= 1
    while end < len(text) and not _EDGE.match(text[end]):
        end += 1
    return text[start:end]
