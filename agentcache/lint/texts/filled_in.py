"""What is filled in at one place of a text and what goes on behind it, by the look of it."""

from __future__ import annotations

import re

from agentcache.lint.texts.forms import mask_slots
from agentcache.lint.texts.spans import Span
from agentcache.lint.texts.spots import Spot
from agentcache.lint.texts.surroundings import has_label, is_version, retrieved_block

_BEGINNING = 240
"""Characters: what varies within so few of the beginning stands first."""

_AT_ONCE = 16
"""Characters that are the same at once behind a value when nothing else shows that it ends there."""
_ENDS = re.compile(r"\s*(?:$|\n|\\n|[.!?;,|)\]}>\"'`]|[-–—]\s)")
"""Behind a value: the end of a line, of a sentence, of a bracket."""
_PUT_IN = 32
_LONG = 80
"""Characters of what was retrieved; less is a value."""
_PHRASE = 3
"""Words; fewer are a name."""
_VALUE = re.compile(r"[\d_@/\\]|\w\.\w|^[0-9a-f]{5,}$")
"""What is a value rather than a word of a sentence has digits or signs."""
_NAME = re.compile(r"[A-Z]\S*(?: \S+)?$")
_WORD = re.compile(r"[\w-]+$")
_LABEL = re.compile(r"\w[\])\"']?[ \t]?[:=][ \t]*[\"'`]?$")
"""``user: anna``, ``"lang": "de"``, ``role=planner``"""
_SENTENCE = re.compile(r"(?:^|[.!?\n])[\s\"'*#>-]*$")


def goes_on(spot: Spot, before_end: int, after_end: int) -> bool:
    """Whether both strings go on in the same way behind a value that was found by its form, so that it is all that is filled
    in there; rather than another line that happens to begin with a value of that form."""
    if _is_put_in(spot):
        return False
    was = mask_slots(spot.before[before_end : before_end + 80])[:_AT_ONCE]
    now = mask_slots(spot.after[after_end : after_end + 80])[:_AT_ONCE]
    if was == now:
        return True
    mine, theirs = _ENDS.match(was), _ENDS.match(now)
    return mine is not None and theirs is not None and mine[0].strip() == theirs[0].strip()


def _is_put_in(spot: Spot) -> bool:
    """One string is the other with more put in, such as a new line at the top of a list of changes."""
    gone = len(spot.before) - spot.parting.behind - spot.offset
    new = len(spot.after) - spot.parting.behind - spot.offset
    return min(gone, new) <= 2 and max(gone, new) > _PUT_IN


def are_values(spot: Spot, span: Span) -> bool:
    """Two values of one slot, rather than words that somebody changed in a prompt: names, numbers, or whole phrases.

    A version is the program's: a deployment changes it, and not a request.
    """
    if is_version(spot.before, span.start, span.before_end) and is_version(spot.after, span.start, span.after_end):
        return False
    parts = spot.values(span)
    if not all(parts) or _is_longer(*parts):
        return False
    if all(_VALUE.search(part) for part in parts) or _are_phrases(*parts):
        return True
    label = spot.after[max(0, span.start - 24) : span.start]
    if _LABEL.search(label) and all(map(_WORD.match, parts)):
        return True
    # The first word of a sentence has a capital letter without being a name.
    return (all(map(_NAME.match, parts)) or _differ_in_names(*parts)) and not _SENTENCE.search(label[-8:])


def _are_phrases(was: str, now: str) -> bool:
    """Several words each, of which most are others."""
    mine, theirs = was.split(), now.split()
    fewer = min(len(mine), len(theirs))
    return fewer >= _PHRASE and 2 * len(set(mine) & set(theirs)) <= fewer


def _differ_in_names(was: str, now: str) -> bool:
    """The same words around other names: ``Ann and lives in Rome``, ``Bob and lives in Oslo``."""
    mine, theirs = was.split(), now.split()
    pairs = [(one, other) for one, other in zip(mine, theirs, strict=False) if one != other]
    return len(mine) == len(theirs) > len(pairs) > 0 and all(_NAME.match(word) for pair in pairs for word in pair)


def _is_longer(was: str, now: str) -> bool:
    """One is the other with more put in before or behind it: a line of a prompt that is new, rather than another value."""
    short, long = sorted((was.split(), now.split()), key=len)
    return len(short) < len(long) and short in (long[: len(short)], long[-len(short) :])


def is_retrieved(spot: Spot) -> bool:
    """Most likely documents that were looked up for the question."""
    behind = spot.parting.behind
    if max(len(spot.before), len(spot.after)) - behind - spot.offset < _LONG:
        return False
    texts = (spot.before, spot.after)
    return any(retrieved_block(text, spot.offset, spot.line_end) is not None for text in texts)


def stands_first(spot: Spot, span: Span) -> bool:
    """It is at the beginning, or called a task or somebody's data."""
    return span.start <= _BEGINNING or has_label(spot.after, span.start, spot.line_end)


def is_phrase(spot: Spot, span: Span) -> bool:
    """Both values are several words, such as tasks."""
    return _are_phrases(*spot.values(span))
