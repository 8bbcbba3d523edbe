"""Texts that differ in so little that a rule about texts has the word: a value that is filled in, or another writing."""

from __future__ import annotations

import unicodedata

from agentcache.lint.texts.forms import mask_slots


def is_small(before: str, after: str) -> bool:
    """The two are one text with other times, ids or numbers in it, or in another writing."""
    return mask_slots(before) == mask_slots(after) or _without_blanks(before) == _without_blanks(after)


def _without_blanks(text: str) -> str:
    return unicodedata.normalize("NFC", "".join(text.split()))
