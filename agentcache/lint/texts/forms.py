"""Ids and temporary paths in text, by their form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from agentcache.lint.times import TimeText, find_times, mask_times

_NEAR = 80
"""Characters before a place in which a value that it lies in may begin."""
_LONGEST = 400
_RUN = (
    r"(?:sess(?:ion)?|run|request|req|trace|conversation|conv|chat|thread|job|correlation|invocation|execution|span"
    r"|instance|worker|message|nonce|scratch)"
)

_ID = re.compile(
    r"""
      (?P<path> (?: (?:/private|/var)?/tmp | /var/folders | /run/user/\d+ | /dev/shm | [A-Za-z]:[\\/][^\s"'<>]*?[\\/]Temp )
        [\\/] [^\s"'<>`,;)\]}]* [^\s"'<>`,;)\]}.:] )
    | (?<![\w-]) (?: (?P<uuid> [0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12} )
      | (?P<named> [A-Za-z]{2,16} (?:[_-][A-Za-z]{2,16})? [_-] (?=[A-Za-z]*\d) [A-Za-z0-9]{6,} )
      | (?P<hex> (?=\d*[a-fA-F]) (?=[a-fA-F]*\d) [0-9a-fA-F]{8,64} )
      | (?P<mixed> (?=[A-Za-z]*\d) (?=\d*[A-Za-z]) [A-Za-z0-9]{10,64} ) ) (?![\w-]\w)(?!\w)
    """,
    re.VERBOSE,
)
_LABELLED = re.compile(
    rf"""\b (?: {_RUN} [ _-]? (?: id | uuid | key | token )? | (?<!\w\s)(?<!\w[_-])(?:uu)?id )
         (?: \s+ is \b )? \s* (?:[:=\#]\s*)? ["'`(\[<]* $""",
    re.IGNORECASE | re.VERBOSE,
)
"""What stands before an id of this run, rather than of something lasting."""
_EXPLICIT = re.compile(rf"\b{_RUN}[ _-]?(?:id|uuid|key|token)\b\W*(?:is\W*)?$", re.IGNORECASE)
_TOKEN = re.compile(r"[\w-]+")
_SLOTTED = re.compile(r"[\w.,:%/+-]*\d[\w.,:%/+-]*")

Kind = Literal["id", "path"]


@dataclass(frozen=True, slots=True)
class IdText:
    """An id or a temporary path at characters ``[start, end)`` of a text.

    Attributes:
        form: how it looks: ``uuid``, ``hex``, ``named`` (``req_8c1f``), ``mixed``, ``path``, or ``labelled``: only what
            stands before it says what it is.
    """

    start: int
    end: int
    form: str

    @property
    def kind(self) -> Kind:
        return "path" if self.form == "path" else "id"

    @property
    def words(self) -> str:
        return "a temporary path" if self.kind == "path" else "an id"


def find_ids(text: str, start: int = 0, end: int | None = None) -> Iterator[IdText]:
    """What has the form of an id or of a temporary path, in order."""
    for match in _ID.finditer(text, start, len(text) if end is None else end):
        yield IdText(match.start(), match.end(), str(match.lastgroup))


def id_at(text: str, offset: int) -> IdText | None:
    """The id or temporary path that character ``offset`` lies in, or just behind."""
    line = max(text.rfind("\n", 0, offset), text.rfind(" ", 0, max(0, offset - _NEAR))) + 1
    for found in find_ids(text, line, offset + _LONGEST):
        if found.start > offset:
            break
        if offset <= found.end:
            return found
    return _labelled_at(text, line, offset)


def _labelled_at(text: str, line: int, offset: int) -> IdText | None:
    for match in _TOKEN.finditer(text, line, offset + _NEAR):
        if match.start() > offset:
            return None
        if offset <= match.end():
            return IdText(match.start(), match.end(), "labelled") if _is_labelled(text, line, match) else None
    return None


def _is_labelled(text: str, line: int, match: re.Match[str]) -> bool:
    label = text[max(line, match.start() - 40) : match.start()]
    if _EXPLICIT.search(label):
        return True
    return not match[0].isdigit() and any(map(str.isdigit, match[0])) and is_of_one_run(label)


def is_of_one_run(label: str) -> bool:
    """``label`` ends with the name of something that is new for each run: ``session id:``, ``request``."""
    return _LABELLED.search(label) is not None


def time_at(text: str, offset: int) -> TimeText | None:
    """The date or time that character ``offset`` lies in, or just behind."""
    start = max(text.rfind("\n", 0, offset) + 1, offset - _NEAR)
    for time in find_times(text, start, offset + _NEAR):
        if time.start > offset:
            return None
        if offset <= time.end:
            return time
    return None


def first_form(text: str) -> tuple[int, str] | None:
    """Where the first time or id begins, and which of them it is."""
    time, found = next(find_times(text), None), next(find_ids(text), None)
    if time is not None and (found is None or time.start <= found.start):
        return time.start, time.kind
    return None if found is None else (found.start, found.kind)


def mask_slots(text: str) -> str:
    """``text`` with times, ids and words with digits replaced by one character: equal for texts that differ in those."""
    return _SLOTTED.sub("\N{WATCH}", _ID.sub("\N{WATCH}", mask_times(text)))
