"""What mending is asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentcache.lint.finding import Finding
from agentcache.lint.records import Record, Unreadable
from agentcache.lint.report import Report

Relint = Callable[[Mapping[str, Path], Callable[["Record | Unreadable"], None]], Report]
"""Lints files from the beginning, in the order of the mapping, as one workload with a fresh linter.

Its arguments are the files, by the names that findings give them, with where each is read now (which may be a copy that
was mended); and a function that must be called with every record that a reader hands out, before the linter gets it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixOptions:
    """
    Attributes:
        relint: how a fix is proved: by linting again what it would make of the files.
        report: of the files as they are, with figures of each request.
        unsafe: also fixes that somebody should look at.
        diff: show what would be changed, and write nothing.
    """

    relint: Relint
    report: Report
    unsafe: bool = False
    diff: bool = False


@dataclass(frozen=True, slots=True)
class Fixed:
    """A finding that was mended.

    Attributes:
        places: in how many records (or places of a source file) it was.
        tokens: prompt tokens that these records reuse now and did not; ``None`` where nothing is counted (sources).
    """

    finding: Finding
    places: int
    tokens: int | None = None

    @property
    def words(self) -> str:
        """``mended in 12 records: 4,321 tokens are reused now``, to stand behind place and code."""
        if self.tokens is None:
            return "mended"
        records = "1 record" if self.places == 1 else f"{self.places:,} records"
        return f"mended in {records}: {self.tokens:,} tokens are reused now"


@dataclass(frozen=True, slots=True)
class Refused:
    """A finding whose fix was not made.

    Attributes:
        reason: why, as the end of a sentence that begins with ``not applied:``.
    """

    finding: Finding
    reason: str


@dataclass(frozen=True, slots=True)
class FixReport:
    """What became of a run's fixes.

    Attributes:
        remaining: of the files as they are now (with ``diff``: as they would be).
        fixed: mended (with ``diff``: that would be).
        refused: could not be mended, or not without losing something.
        need_unsafe: findings that have a fix which was not asked for.
        changed: names of the files that were written (with ``diff``: that would be).
        diff: what changes: a unified diff of sources, and of records what changes in each; empty unless it was asked for.
        failed: what could not be written: name and reason.  The exit code is 2 then.
        gained: prompt tokens that all requests together reuse more than before.
        written: whether files were to be written at all.
    """

    remaining: Report
    fixed: Sequence[Fixed] = ()
    refused: Sequence[Refused] = ()
    need_unsafe: int = 0
    changed: Sequence[str] = ()
    diff: str = ""
    failed: Sequence[tuple[str, str]] = ()
    gained: int = 0
    written: bool = True

    @property
    def summary(self) -> str:
        """``Fixed 3 of 5 (2 need --unsafe-fixes). 4,321 more prompt tokens are reused.``; empty where nothing has a fix."""
        total = len(self.fixed) + len(self.refused) + self.need_unsafe
        if not total:
            return ""
        notes = []
        if self.need_unsafe:
            notes.append(f"{self.need_unsafe} need{'s' if self.need_unsafe == 1 else ''} --unsafe-fixes")
        if self.refused:
            notes.append(f"{len(self.refused)} not applied")
        verb = "Fixed" if self.written else "Would fix"
        told = f"{verb} {len(self.fixed)} of {total}" + (f" ({', '.join(notes)})." if notes else ".")
        reused = "are" if self.written else "would be"
        return told + (f" {self.gained:,} more prompt tokens {reused} reused." if self.gained > 0 else "")
