"""Where two strings that should be one differ first, and where they are equal again."""

from __future__ import annotations

import re
from typing import NamedTuple

from agentcache.chat.text import common_length
from agentcache.lint.texts.forms import first_form

MIN_SHARED = 64
"""Characters that must be equal behind a difference before it says anything: less is chance."""
_WINDOWS = (256, 2048)
"""Characters of either side in which it is looked for that both are equal again."""
_STEP = 4
"""Every so manieth place of the earlier side is looked at; what is equal before it is found by going back."""
_WORD = re.compile(r"[\w./\\:@+-]*\Z")
_WORD_END = re.compile(r"\w*")


class Span(NamedTuple):
    """A slot: characters ``[start, before_end)`` of the earlier string, ``[start, after_end)`` of the later.

    ::

        earlier:  Used 12 of 40 calls. You are …
        later:    Used 9 of 40 calls. You are …
                       ^ start
    """

    start: int
    before_end: int
    after_end: int

    @property
    def size(self) -> int:
        """Characters of the longer side."""
        return max(self.before_end, self.after_end) - self.start


def first_slot(before: str, after: str, offset: int, behind: int) -> Span:
    """The first difference, whole words, up to where at least ``MIN_SHARED`` characters are equal again.

    Args:
        offset: first character that differs.
        behind: characters that both have in common at their ends.
    """
    span = Span(offset, len(before) - behind, len(after) - behind)
    if span.size > MIN_SHARED:
        span = _meeting(before, after, span)
    return _whole_words(before, after, _cut_at_form(before, after, span))


def _meeting(before: str, after: str, hull: Span) -> Span:
    """The first place in ``hull`` from which both are equal for a while; ``hull`` where there is none."""
    start, before_end, after_end = hull
    for window in _WINDOWS:
        places: dict[str, int] = {}
        for i in range(start, min(before_end, start + window), _STEP):
            places.setdefault(before[i : i + MIN_SHARED], i)
        best: tuple[int, int, int] | None = None
        for j in range(start, min(after_end, start + window)):
            if best is not None and j - start >= best[0]:
                break
            i = places.get(after[j : j + MIN_SHARED], -1)
            if i >= 0 and (best is None or (i - start) + (j - start) < best[0]):
                best = ((i - start) + (j - start), i, j)
        if best is not None:
            _, i, j = best
            back = 0
            while i - back > start and j - back > start and before[i - back - 1] == after[j - back - 1]:
                back += 1
            return Span(start, i - back, j - back)
        if max(before_end, after_end) - start <= window:
            break
    return hull


def _cut_at_form(before: str, after: str, span: Span) -> Span:
    """A slot that a time or an id follows closely ends before it: that is a slot of its own."""
    if span.size > 8 * MIN_SHARED:
        return span
    was, now = before[span.start : span.before_end], after[span.start : span.after_end]
    first, other = first_form(was), first_form(now)
    if first is None or other is None or first[1] != other[1]:
        return span
    was, now = was[: first[0]], now[: other[0]]
    if was == now:
        return span
    same = common_suffix(was, now)
    return Span(span.start, span.start + len(was) - same, span.start + len(now) - same)


def _whole_words(before: str, after: str, span: Span) -> Span:
    head = _WORD.search(before[max(0, span.start - 40) : span.start])
    start = span.start - (len(head[0]) if head else 0)
    tail = _WORD_END.match(before, span.before_end)
    more = len(tail[0]) if tail else 0
    if before[span.before_end : span.before_end + more] != after[span.after_end : span.after_end + more]:
        more = 0
    return Span(start, span.before_end + more, span.after_end + more)


def common_suffix(a: str, b: str) -> int:
    """How many characters at the ends are equal."""
    room = min(len(a), len(b))
    return common_length(a[len(a) - room :][::-1], b[len(b) - room :][::-1])


def equal_behind(before: str, after: str, before_end: int, after_end: int, behind: int) -> int:
    """How many characters are equal again behind a slot: in one piece, and at once or after further slots.

    Args:
        behind: characters that both have in common at their ends.
    """
    behind = min(behind, len(before) - before_end, len(after) - after_end)
    at_once = common_length(before[before_end:], after[after_end:])
    if max(at_once, behind) >= MIN_SHARED:
        return max(at_once, behind)
    rest = Span(0, len(before) - before_end - behind, len(after) - after_end - behind)
    if rest.size <= 0 or min(rest.before_end, rest.after_end) < 0:
        return max(at_once, behind)
    met = _meeting(before[before_end:], after[after_end:], rest)
    again = common_length(before[before_end + met.before_end :], after[after_end + met.after_end :])
    return max(at_once, behind, again)
