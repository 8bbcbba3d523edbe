"""Remembers, while requests are linted, how each of them would have to read: what can be changed in its own record.

::

    request ── defect A ──► without A ── defect B ──► without A and B          a chain of repairs, in the order of the prompt

What stands behind a defect that stays is computed again anyhow, so of each chain a beginning is applied, or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xxhash import xxh3_128_digest

from agentcache.lint.finding import Applicability, Finding
from agentcache.lint.fixes.changes import Change, OrderChange, applied, at, changes_between
from agentcache.lint.fixes.content import lost_content
from agentcache.lint.fixes.json_text import NotExactError
from agentcache.lint.fixes.native import native_changes
from agentcache.lint.records import Body, Record
from agentcache.lint.rules.base import NoEdit, TextEdit
from agentcache.lint.tallies import Account, Explained


@dataclass(slots=True)
class Defect:
    """A defect that can be mended in some of the records that show it.

    Attributes:
        code, file, line, path: of the finding that tells of it.
        hindered: why it cannot be mended in others -> in how many.
    """

    code: str
    file: str
    line: int
    path: str
    applicability: Applicability
    records: int = 0
    hindered: dict[str, int] = field(default_factory=dict)

    def hinder(self, reason: str) -> None:
        self.hindered[reason] = self.hindered.get(reason, 0) + 1


@dataclass(frozen=True, slots=True)
class Repair:
    """What mends one defect in one record.

    Attributes:
        changes: of the record's own JSON, as it is after the repairs before this one.
        olds: digests of the values that change.
        before: digest of that JSON.
        after: digest of the request's body without the defect; empty where that is not known.
        lost: tokens that the request loses to the defect.
    """

    defect: Defect
    changes: tuple[Change, ...]
    olds: tuple[bytes, ...]
    before: bytes
    after: bytes
    lost: int


@dataclass(slots=True)
class _Reading:
    """The record that is being explained.

    Attributes:
        body: what the next repair must start from.
        meant: the request as it will be read with the repairs so far.
        source: its JSON with them.
        obstacle: why nothing more can be mended in it.
    """

    file: str
    line: int
    body: Body
    meant: Body
    source: Any
    obstacle: str | None = None


class RepairLog:
    """Hears of every defect that the linter explains, in order."""

    def __init__(self) -> None:
        self._defects: dict[Account, Defect] = {}
        self._chains: dict[str, dict[int, list[Repair]]] = {}
        self._known: dict[Hashable, tuple[Change, ...]] = {}
        self._reading: _Reading | None = None

    def note(self, explained: Explained, lost: int) -> None:
        """``explained.prompt`` becomes ``explained.mended`` by its cause's edit, and that saves ``lost`` tokens."""
        reading = self._begin(explained.prompt.record)
        applicability = explained.cause.fix.applicability
        path = _path(explained)
        if applicability == "display" or isinstance(explained.cause.edit, NoEdit):
            reading.obstacle = (
                reading.obstacle or f"nothing is reused behind {explained.rule.code} at {path}, which stays"
            )
            return
        defect = self._defects.setdefault(
            explained.account, Defect(explained.rule.code, reading.file, reading.line, path, applicability)
        )
        defect.records += 1
        try:
            repair = self._repair(explained, defect, reading, lost)
        except (NotExactError, RecursionError) as error:
            defect.hinder(str(error) if isinstance(error, NotExactError) else "the record is nested too deep")
            reading.obstacle = reading.obstacle or f"nothing is reused behind {defect.code} at {path}, which stays"
            return
        self._chains.setdefault(reading.file, {}).setdefault(reading.line, []).append(repair)

    @property
    def chains(self) -> Mapping[str, Mapping[int, list[Repair]]]:
        """Repairs of each record, by file and line, in the order of the prompt."""
        return self._chains

    def defects_of(self, finding: Finding) -> Iterator[Defect]:
        """What a finding tells of.  Two defects of one code that a record has at one path are mended together."""
        place = finding.location
        mine = [
            defect
            for defect in self._defects.values()
            if (defect.code, defect.file, defect.line) == (finding.code, place.file, place.record)
        ]
        exact = [defect for defect in mine if defect.path == place.path]
        yield from exact or mine

    def _begin(self, record: Record) -> _Reading:
        reading = self._reading
        if reading is not None and (reading.file, reading.line) == (record.file, record.line):
            if reading.body is not record.body:  # a repair of which nothing was told
                reading.obstacle = reading.obstacle or "nothing is reused behind what stays before it"
            return reading
        self._reading = reading = _Reading(record.file, record.line, record.body, record.body, record.source)
        if record.source is None:
            reading.obstacle = "files of this kind are not rewritten"
        elif record.prompt_ids is not None:
            reading.obstacle = "the record holds the prompt's token ids too, and they would not fit any more"
        return reading

    def _repair(self, explained: Explained, defect: Defect, reading: _Reading, lost: int) -> Repair:
        """
        Raises:
            NotExactError: why the record cannot be mended.
        """
        if reading.obstacle is not None:
            raise NotExactError(reading.obstacle)
        record, body = explained.prompt.record, explained.mended.record.body
        asked = [change for change in changes_between(record.body, body) if not _is_idle(change)]
        if not asked:
            raise NotExactError("nothing in the request would change")
        if (loss := lost_content(defect.code, record.body, asked)) is not None:
            raise NotExactError(loss)
        changes = tuple(native_changes(asked, record.body, record.places, reading.source))
        before, olds = digest(reading.source), olds_of(reading.source, changes)
        reading.source, reading.meant = applied(reading.source, changes), applied(reading.meant, asked)
        reading.body = body
        return Repair(defect, self._kept_once(changes), olds, before, digest(reading.meant), lost)

    def _kept_once(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        """Many records are often mended in the same way."""
        try:
            return self._known.setdefault(changes, changes)
        except TypeError:  # what is added has lists in it
            return changes


def _is_idle(change: Change) -> bool:
    """In which order a request names its own members (model, tools, messages, …) says nothing."""
    return isinstance(change, OrderChange) and not change.keys


def digest(value: Any) -> bytes:
    """Of a JSON value; members in another order or numbers in another spelling give another one."""
    return xxh3_128_digest(
        json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    )


def olds_of(value: Any, changes: Sequence[Change]) -> tuple[bytes, ...]:
    """Digests of what ``changes`` would change in ``value``; none where it has no such places."""
    try:
        return tuple(digest(at(value, change.keys)) for change in changes)
    except (LookupError, TypeError):
        return ()


def _path(explained: Explained) -> str:
    edit = explained.cause.edit
    keys = edit.leaf.keys if isinstance(edit, TextEdit) else edit.keys
    return explained.prompt.path(keys)
