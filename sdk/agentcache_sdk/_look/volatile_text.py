"""Texts that change from request to request: times, ids, temporary paths, counters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_WEEKDAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}"
_DATE = rf"""(?: (?:19|20)\d\d[-/.]\d\d?[-/.]\d\d? | \d\d?[-/.]\d\d?[-/.](?:19|20)\d\d
    | (?:{_WEEKDAY},?[ ])? {_MONTH}[ ]\d\d?(?:st|nd|rd|th)?,?(?:[ ](?:19|20)\d\d)?
    | (?:{_WEEKDAY},?[ ])? \d\d?(?:st|nd|rd|th)?[ ]{_MONTH},?(?:[ ](?:19|20)\d\d)? )"""
_CLOCK = r"(?:[01]?\d|2[0-3]):[0-5]\d(?P<sec{n}>:[0-5]\d(?:[.,]\d{{1,9}})?)?(?:[ ]?[AaPp]\.?[Mm]\.?)?"
_ZONE = r"(?:[ ]?(?:Z|UTC|GMT|[A-Z]{1,3}[SD]?T)\b|[ ]?[+-]\d\d:?\d\d)?"

_SLOTS = re.compile(
    rf"""
      (?P<id> \b [0-9a-fA-F]{{8}}-[0-9a-fA-F]{{4}}-[0-9a-fA-F]{{4}}-[0-9a-fA-F]{{4}}-[0-9a-fA-F]{{12}} \b )
    | (?P<path> (?:(?:/var|/private)?/tmp|/var/folders|/run/user/\d+|[A-Za-z]:\\[^\s"'<>]*\\Temp)
        [/\\] [^\s"'<>`,;)]* [^\s"'<>`,;).:] )
    | (?<![\w:.]) (?P<stamp> {_DATE} (?:T|,?[ ](?:at[ ])?) {_CLOCK.format(n=1)} {_ZONE}
        | {_CLOCK.format(n=2)} {_ZONE} ,?[ ] (?:on[ ])? {_DATE}
        | {_WEEKDAY}[ ]{_MONTH}[ ]+\d\d?[ ]{_CLOCK.format(n=4)}[ ](?:19|20)\d\d ) (?!\w)
    | (?<![\w:.]) (?P<day> {_DATE} ) (?![\w:])
    | (?<![\w:.]) (?P<clock> {_CLOCK.format(n=3)} {_ZONE} ) (?![\w:])
    | (?<![\w.]) (?P<epoch> 1[5-9]\d{{8}} (?:\d{{3}})? (?:\.\d{{1,9}})? ) (?!\w|\.\d)
    | \b (?P<nonce> (?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z]) [0-9A-Za-z]+ (?:[_-][0-9A-Za-z]+)* ) \b
    | (?P<number> \d+ (?:[.,]\d+)* )
    """,
    re.VERBOSE,
)
Kind = Literal["id", "path", "stamp", "day", "clock", "epoch", "nonce", "number"]


@dataclass(frozen=True, slots=True)
class Slot:
    """Something at characters ``[start, end)`` of a text that programs fill in.

    Attributes:
        seconds: of a time: it names the second.
    """

    start: int
    end: int
    kind: Kind
    seconds: bool = False

    @property
    def code(self) -> str:
        if self.kind in ("stamp", "day", "clock", "epoch"):
            return "AC101"
        return "AC103" if self.kind == "number" else "AC102"


def slots_of(text: str, start: int = 0, end: int | None = None) -> Iterator[Slot]:
    for match in _SLOTS.finditer(text, start, len(text) if end is None else end):
        yield _slot(match)


def masked(text: str) -> str:
    """``text`` with a mark in place of every slot: equal for texts that differ in their slots only."""
    return _SLOTS.sub("\N{WATCH}", text)


def _slot(match: re.Match[str]) -> Slot:
    kind = next(name for name in get_args(Kind) if match[name] is not None)
    seconds = kind == "epoch" or any(match[f"sec{n}"] for n in (1, 2, 3, 4))
    return Slot(match.start(), match.end(), kind, seconds)


_NOW = re.compile(
    r"""(?: \b(?: now | today(?:'s)? | current(?:ly)? | timestamp | as[ ]of | it[ ]is | it's | time | date )\b )
        (?: \W | \b(?:date|time|day|is|and|the|local|utc|at|s)\b ){0,12} $""",
    re.IGNORECASE | re.VERBOSE,
)
"""What stands before a time that says when the request was made."""
_TALKED_ABOUT = re.compile(
    r"\b(?:e\.g\.|i\.e\.|examples?|such as|format|like|iso ?8601|cut-?off|since|until|before|after|between|from|version"
    r"|released?|published|effective)\b",
    re.IGNORECASE,
)
"""What stands before a time that is only talked about."""
_ONE_RUN = re.compile(
    r"\b(?:run|session|request|trace|conversation|thread|job|task|correlation|invocation|nonce|uuid|scratch)\b"
    r"(?:[ _-]?id)?\W{0,4}(?:is\W{0,3})?$",
    re.IGNORECASE,
)
"""What stands before an id of this run, rather than of something lasting."""
_FRESH_FOLDER = re.compile(r"[/\\]tmp[a-z0-9_]{8}(?:[/\\]|$)|[/\\][0-9a-f]{8}-[0-9a-f]{4}-")
_LIKELY = re.compile(
    rf"""\d\d?:\d\d | (?:19|20)\d\d[-/.]\d | \d[-/.](?:19|20)\d\d | {_MONTH}[ ]\d | \d[ ]{_MONTH} | \b1[5-9]\d{{8}}
       | [0-9a-fA-F]{{8}}-[0-9a-fA-F]{{4}}-
       | /tmp/ | \\Temp\\ | /var/folders/ """,
    re.VERBOSE,
)


def suspicious_slots(text: str) -> Iterator[Slot]:
    """Slots of a single text that read as if the next request will have something else there: the first of each code."""
    said: set[str] = set()
    for place in _LIKELY.finditer(text):
        line_start = text.rfind("\n", 0, place.start()) + 1
        line_end = text.find("\n", place.end())
        line_end = len(text) if line_end < 0 else line_end
        start, end = max(line_start, place.start() - 80), min(line_end, place.end() + 80)
        for slot in slots_of(text, start, end):
            if slot.end <= place.start() or slot.code in said or slot.start == start > line_start:
                continue
            if _reads_as_fresh(text, slot, line_start):
                said.add(slot.code)
                yield slot
        if len(said) == 2:
            return


def _reads_as_fresh(text: str, slot: Slot, line_start: int) -> bool:
    line = re.split(r"(?<!\.[a-z])[.!?]\s", text[line_start : slot.start][-60:])[-1]
    if slot.kind == "path":
        return _FRESH_FOLDER.search(text, slot.start, slot.end) is not None
    if slot.kind == "id":
        return _ONE_RUN.search(line) is not None
    if slot.code != "AC101" or _TALKED_ABOUT.search(line):
        return False
    if _NOW.search(line):
        return True
    return slot.kind == "stamp" and not line.strip(" \t[(<#*-")
