"""What rules about texts say of a single request, from the look of it."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

from agentcache.lint.leaves import StringAt
from agentcache.lint.rules.base import Observation
from agentcache.lint.texts.forms import mask_slots
from agentcache.lint.texts.spots import Words, shown


def suspicion(string: StringAt, start: int, end: int, words: Words) -> Observation:
    """Characters ``[start, end)`` of ``string`` look as if they will differ in the next request."""
    before = mask_slots(string.value[:start]).encode("utf-8", "surrogatepass")
    return Observation(
        place=(string.keys, xxh3_64_intdigest(before)),
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
