"""What rules about texts say of a single request, from the look of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentcache.lint.leaves import StringAt
from agentcache.lint.rules.base import Observation
from agentcache.lint.texts.forms import mask_slots
from agentcache.lint.texts.spots import Words, shown

_LABEL = 60
"""Characters before a value, of its line, by which it is known again in another request."""
_REACH = 60
"""Characters on both sides of a sign in which a value is looked for."""


def near(text: str, sign: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Stretches of ``text`` around each ``sign``, in order, none overlapping another: a cheap look before a dear one."""
    end = 0
    while (found := sign.search(text, end)) is not None:
        start = max(end, text.rfind("\n", end, found.start()) + 1, found.start() - _REACH)
        line_end = text.find("\n", found.end())
        end = min(line_end if line_end >= 0 else len(text), found.end() + _REACH)
        end = max(end, found.end())
        yield start, end


def suspicion(string: StringAt, start: int, end: int, words: Words) -> Observation:
    """Characters ``[start, end)`` of ``string`` look as if they will differ in the next request."""
    line = string.value[string.value.rfind("\n", 0, start) + 1 : start][-_LABEL:]
    return Observation(
        place=(string.keys, mask_slots(line)),
        value=string.value[start:end],
        keys=string.keys,
        char=start,
        severity=words.severity,
        after=shown(string.value, start, end),
        message=words.message,
        help=words.help,
    )


def owner_of(string: StringAt) -> str:
    """Whose text it is, for people."""
    return {"tools": "a tool's text", "prompt": "the prompt"}.get(string.role, "the system text")
