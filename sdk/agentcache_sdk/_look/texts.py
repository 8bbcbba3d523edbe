"""Why two texts that should be one text are not."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from agentcache_sdk._look.volatile_text import Slot, masked, slots_of

MIN_SHARED = 64
"""Characters that must be equal behind a difference before it says anything: less is chance."""
_BEGINNING = 240
"""Characters: what varies within so few of the beginning stands first."""


@dataclass(frozen=True, slots=True)
class TextChange:
    """::

        earlier:  It is 10:30:05. You are …
        later:    It is 10:31:47. You are …
                        ^ char   (before, after: 10:30:05, 10:31:47)

    Attributes:
        char: first character that differs; the same in both.
        severity: ``warning``, or ``info`` for what changes once a day.
    """

    code: str
    char: int
    before: str
    after: str
    severity: str = "warning"


@dataclass(frozen=True, slots=True)
class Span:
    """Two texts are equal in their first ``head`` and, behind the last difference, in their last ``tail`` characters."""

    head: int
    tail: int


def span(a: str, b: str) -> Span:
    """Where two different texts differ; ``head + tail`` is at most the length of the shorter one."""
    head = common_prefix(a, b)
    room = min(len(a), len(b)) - head
    tail = common_suffix(a, b, room)
    return Span(head, tail)


def common_prefix(a: str, b: str) -> int:
    """By halving: comparing two slices is far cheaper than a step of Python."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def common_suffix(a: str, b: str, limit: int) -> int:
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        if a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]:
            low = middle
        else:
            high = middle
    return low


def writing_change(a: str, b: str, at: int) -> TextChange | None:
    """The same text written in another way: Unicode form, escapes, white space."""
    plain = a.isascii() and b.isascii()
    if not plain and unicodedata.normalize("NFC", a) == unicodedata.normalize("NFC", b):
        return _excerpts("AC205", a, b, at)
    if ("\\u" in a) != ("\\u" in b) and _unescaped(a) == _unescaped(b):
        return _excerpts("AC206", a, b, at)
    words = a[at:].split(), b[at:].split()  # what stands before is the same
    if words[0] == words[1] or "".join(words[0]) == "".join(words[1]):
        return _excerpts("AC204", a, b, at)
    return None


def _unescaped(text: str) -> str:
    paired = re.sub(
        r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})",
        lambda m: bytes.fromhex(m[1] + m[2]).decode("utf-16-be"),
        text,
    )
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), paired)


def set_change(a: str, b: str, where: Span) -> TextChange | None:
    """The same items in another order, separated by commas or line ends."""
    a_start, a_end = _lines(a, where)
    b_start, b_end = _lines(b, where)
    one, other = a[a_start:a_end], b[b_start:b_end]
    if len(one) != len(other) or len(one) > 4000:
        return None
    for separator in (r"\n", r"\s*,\s*"):
        mine, theirs = (_items(text, separator) for text in (one, other))
        if len(mine) > 2 and sorted(mine) == sorted(theirs):
            return _excerpts("AC203", a, b, where.head)
    return None


def _items(text: str, separator: str) -> list[str]:
    # The first item stands behind what the line begins with, the last one may have a full stop behind it.
    body = re.sub(r"^[^\n:\[({]*[:\[({]\s*", "", text) if separator != r"\n" else text
    return [item.strip(" \t.])}'\"") for item in re.split(separator, body)]


def _lines(text: str, where: Span) -> tuple[int, int]:
    start = text.rfind("\n", 0, where.head) + 1
    end = text.find("\n", max(len(text) - where.tail, where.head))
    return start, len(text) if end < 0 else end


def slot_changes(a: str, b: str, where: Span) -> list[TextChange]:
    """The slots that differ, the first one of each code; none when anything besides slots differs."""
    a_start, a_end = _around(a, where)
    b_start, b_end = _around(b, where)
    if masked(a[a_start:a_end]) != masked(b[b_start:b_end]):
        return []
    found: dict[str, TextChange] = {}
    for one, other in zip(slots_of(a, a_start, a_end), slots_of(b, b_start, b_end), strict=False):
        before, after = a[one.start : one.end], b[other.start : other.end]
        if before != after:
            change = _slot_change(one, other, before, after)
            found.setdefault(change.code, change)
    return list(found.values())


def _slot_change(one: Slot, other: Slot, before: str, after: str) -> TextChange:
    code = other.code if one.kind != "number" or other.code != "AC102" else "AC102"
    if other.kind == "nonce" and re.sub(r"\d+", "#", before) == re.sub(r"\d+", "#", after):
        code = "AC103"
    char = one.start + common_prefix(before, after)
    return TextChange(code, char, before, after, "info" if one.kind == other.kind == "day" else "warning")


def _around(text: str, where: Span) -> tuple[int, int]:
    """The lines that hold all differences, so that a slot is seen whole; a very long line is cut at blanks."""
    start, end = _lines(text, where)
    if where.head - start > 200:
        start = text.rfind(" ", start, where.head - 100) + 1 or where.head - 100
    last = len(text) - where.tail
    if end - last > 200:
        cut = text.find(" ", last + 100, end)
        end = cut if cut >= 0 else last + 100
    return start, end


_ENVIRONMENT = re.compile(
    r"^\W*(?:working (?:directory|dir)|cwd|pwd|platform|os|os version|hostname|host|user|username|home|shell|git status"
    r"|(?:git|current) branch|branch|is (?:directory )?a? ?git repo\w*"
    r"|python|node|environment|workspace|open files?|free disk)\b\W*[:=]",
    re.IGNORECASE,
)
_BLOCK = re.compile(
    r"<(env|environment|environment_details|system_info|git_?status)\b[^>]*>(?:(?!</\1>).)*$", re.DOTALL
)


def environment_change(a: str, b: str, where: Span) -> TextChange | None:
    """A line about the machine, the working tree or the user's surroundings."""
    start = b.rfind("\n", 0, where.head) + 1
    if _ENVIRONMENT.search(b[start : where.head + 1]) or _BLOCK.search(b[max(0, where.head - 4000) : where.head]):
        return _regions("AC104", a, b, where)
    return None


def words_change(a: str, b: str, where: Span, others: Sequence[str]) -> TextChange | None:
    """A part in words that varies before a part that does not.

    One pair of texts may be somebody's edit of a prompt.  So a pair speaks only where the part is a task or a value
    and stands first; anything else needs a third value in the same place.

    Args:
        others: further earlier texts.
    """
    if where.tail < MIN_SHARED:
        return None
    change = _regions("AC105" if where.head <= _BEGINNING and where.tail >= where.head else "AC103", a, b, where)
    size = max(len(change.before), len(change.after))
    if size > where.tail + where.head:
        return None
    put_in = any(not text[where.head : len(text) - where.tail].strip() for text in (a, b))
    if change.code == "AC105" and size <= where.tail and not put_in and _is_filled_in(change):
        return change
    head, tail = b[: where.head], b[len(b) - where.tail :]
    values = {a, b} | {text for text in others if text.startswith(head) and text.endswith(tail)}
    return change if len(values) > 2 else None


def _is_filled_in(change: TextChange) -> bool:
    """Two values of one slot, rather than a word that somebody changed."""
    parts = change.before.strip(), change.after.strip()
    if not all(parts):
        return False
    return all(len(part.split()) >= 3 or re.search(r"[\d_@/.\\]|\b[A-Z]", part) for part in parts)


def edit_change(a: str, b: str, where: Span) -> TextChange:
    return _regions("AC401", a, b, where)


def _regions(code: str, a: str, b: str, where: Span) -> TextChange:
    """The differing parts, from and to the next blank."""
    start = max(b.rfind(" ", 0, where.head), b.rfind("\n", 0, where.head)) + 1
    start = where.head if where.head - start > 40 else start
    parts = []
    for text in (a, b):
        stop = len(text) - where.tail
        end = min((place for place in (text.find(" ", stop), text.find("\n", stop)) if place >= 0), default=len(text))
        parts.append(shown(text[start : stop if end - stop > 40 else end]))
    return TextChange(code, where.head, parts[0], parts[1])


def _excerpts(code: str, a: str, b: str, at: int, around: int = 12) -> TextChange:
    start = max(0, at - around)
    return TextChange(code, at, a[start : at + around], b[start : at + around])


def shown(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
