"""Texts that differ in so little that a rule about texts has the word: a value that is filled in, or another writing."""

from __future__ import annotations

from agentcache.lint.texts.forms import mask_slots
from agentcache.lint.texts.writing import same_but_for_blanks, same_but_for_escapes, same_but_for_form


def is_small(before: str, after: str) -> bool:
    """The two are one text with other times, ids or numbers in it, or in another writing."""
    if mask_slots(before) == mask_slots(after):
        return True
    return any(alike(before, after) for alike in (same_but_for_blanks, same_but_for_form, same_but_for_escapes))
