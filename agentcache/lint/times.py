"""Finds dates and times of day in text: what programs put into prompts, not everything a person may mean by a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

_TIME = r"""
    (?: (?:[01]?\d|2[0-3]) : [0-5]\d (?P<second> : (?:[0-5]\d|60) (?P<fraction> [.,]\d{1,9} )? )?
        (?: \s? [AaPp] (?: [Mm]\b | \.[Mm]\. ) )?
      | (?: 1[0-2] | 0?[1-9] ) \s? [AaPp][Mm] )
    (?: \s?Z\b | \s? [+-]\d\d:?\d\d | \s? (?:UTC|GMT|[A-Z]{1,3}[SD]T) (?: [+-]\d{1,2} )? )?
"""
_YEAR = r"(?: (?:19|20)\d\d )"
_DAY = r"(?: 0?[1-9] | [12]\d | 3[01] )"
_MONTH = r"(?: 0?[1-9] | 1[0-2] )"
_MONTH_NAME = r"""(?: Jan(?:uary)? | Feb(?:ruary)? | Mar(?:ch)? | Apr(?:il)? | May | June? | July? | Aug(?:ust)?
                    | Sept?(?:ember)? | Oct(?:ober)? | Nov(?:ember)? | Dec(?:ember)? )"""
_WEEKDAY = r"(?: (?: Mon | Tues? | Wed(?:nes)? | Thu(?:rs)? | Fri | Sat(?:ur)? | Sun ) (?:day)? )"
_DATE = rf"""(?:
      {_YEAR} (?P<separator>[-/.]) {_MONTH} (?P=separator) {_DAY}
    | {_DAY} (?P<separator2>[-/.]) {_DAY} (?P=separator2) {_YEAR}
    | (?: {_WEEKDAY} ,? \s+ )? {_MONTH_NAME} \.? \s+ {_DAY} (?:st|nd|rd|th)? \b (?: ,? \s+ {_YEAR} )?
    | (?: {_WEEKDAY} ,? \s+ )? {_DAY} (?:st|nd|rd|th)? [\s-] (?:of\s)? {_MONTH_NAME} \.? (?: ,? [\s-] {_YEAR} )?
    | {_MONTH_NAME} ,? \s+ {_YEAR}
)"""
_JOINT = r"(?: T | ,?\s+ (?: at\s+ | @\s* | [-–|]\s+ )? )"


def _named(pattern: str, suffix: str) -> str:
    return re.sub(r"\(\?P(<|=)(\w+)", rf"(?P\g<1>\g<2>{suffix}", pattern)


_STAMP = re.compile(
    rf"""(?P<hanzi> {_YEAR} \s? 年 \s? {_MONTH} \s? 月 \s? {_DAY} \s? [日号] ) | (?<![\w:.])(?:
      (?P<ctime> {_WEEKDAY} \s+ {_MONTH_NAME} \s+ {_DAY} \s+ {_named(_TIME, "_c")} \s+ {_YEAR} )
    | (?P<dated> {_named(_DATE, "_d")} {_JOINT} {_named(_TIME, "_d")} )
    | (?P<timed> {_named(_TIME, "_t")} (?: ,?\s+(?:on\s+)? | \s*[-–|]\s* ) {_named(_DATE, "_t")} )
    | (?P<packed> {_YEAR} (?:0[1-9]|1[0-2]) (?:0[1-9]|[12]\d|3[01]) [T_-]? (?:[01]\d|2[0-3]) [0-5]\d (?P<packed_second>[0-5]\d)?
                  (?:\.\d{{1,9}})? Z? )
    | (?P<epoch> 1[5-9]\d{{8}} (?P<epoch_fraction> \.\d{{1,9}} | \d{{3}} | \d{{6}} | \d{{9}} )? )
    | (?P<date> {_named(_DATE, "_o")} )
    | (?P<time> {_named(_TIME, "_p")} )
    | (?P<weekday> {_WEEKDAY} )
    )(?!\w)""",
    re.VERBOSE,
)


class Granularity(IntEnum):
    """The finest unit that a time names: how often its text changes."""

    DAY = 0
    HOUR = 1
    MINUTE = 2
    SECOND = 3
    FRACTION = 4

    @property
    def words(self) -> str:
        return "a fraction of a second" if self is Granularity.FRACTION else f"the {self.name.lower()}"


@dataclass(frozen=True, slots=True)
class TimeText:
    """A date or time at characters ``[start, end)`` of a text.

    Attributes:
        kind: which way of writing it is: ``dated``, ``timed``, ``ctime``, ``packed``, ``epoch``, ``date``, ``time``, ``weekday``.
    """

    start: int
    end: int
    kind: str
    granularity: Granularity

    @property
    def complete(self) -> bool:
        """Names a day and a time of that day."""
        return self.kind in ("dated", "timed", "ctime", "packed", "epoch")


def find_times(text: str, start: int = 0, end: int | None = None) -> Iterator[TimeText]:
    """Dates and times in ``text``, or in its characters ``[start, end)``, in order, none overlapping another."""
    for match in _STAMP.finditer(text, start, len(text) if end is None else end):
        kind = "date" if match.lastgroup == "hanzi" else str(match.lastgroup)
        yield TimeText(match.start(), match.end(), kind, _granularity(match))


def mask_times(text: str) -> str:
    """``text`` with every date and time replaced by the same character, so that texts equal but for the time become equal."""
    return _STAMP.sub("\N{WATCH}", text)


def _granularity(match: re.Match[str]) -> Granularity:
    kind = match.lastgroup
    if kind in ("date", "hanzi", "weekday"):
        return Granularity.DAY
    if kind == "epoch":
        return Granularity.FRACTION if match["epoch_fraction"] else Granularity.SECOND
    if kind == "packed":
        if not match["packed_second"]:
            return Granularity.MINUTE
        return Granularity.FRACTION if "." in match[0] else Granularity.SECOND
    suffix = {"ctime": "_c", "dated": "_d", "timed": "_t", "time": "_p"}[str(kind)]
    if match[f"fraction{suffix}"]:
        return Granularity.FRACTION
    if match[f"second{suffix}"]:
        return Granularity.SECOND
    return Granularity.MINUTE if ":" in match[0] else Granularity.HOUR
