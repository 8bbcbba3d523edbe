"""Mends files of records, and proves it: what was written is read again, linted again, and must reuse what was promised.

::

    chains of repairs ─► mended copies ─► same reader, same linter ─► every request as it was meant to be,
           ▲                                                          none reuses less, each mended one what it lost
           └──────────── without what was not proved ◄────────────────┘
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentcache.lint.fixes.changes import applied, rewritten
from agentcache.lint.fixes.json_text import NotExactError, same
from agentcache.lint.fixes.outcome import FixOptions
from agentcache.lint.fixes.repairs import Repair, digest
from agentcache.lint.linter import Report, RequestFigures
from agentcache.lint.records import Record, Unreadable

_ROUNDS = 4
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_CHANGED = "the record is no line of the file as it is now"

Chains = Mapping[str, Mapping[int, Sequence[Repair]]]
"""Repairs by file and line."""
_Place = tuple[str, int]


@dataclass(slots=True)
class MendedRecords:
    """What can be written.

    Attributes:
        copies: mended copies of the files that change, by name.
        chains: the repairs in them.
        report: of the mended files.
        recovered: tokens that are reused now and were not, by defect.
        hindered: why repairs were left out, by defect.
    """

    copies: dict[str, Path] = field(default_factory=dict)
    chains: dict[str, dict[int, Sequence[Repair]]] = field(default_factory=dict)
    report: Report | None = None
    recovered: dict[int, int] = field(default_factory=dict)
    hindered: dict[int, str] = field(default_factory=dict)


def mend_records(files: Mapping[str, Path], chains: Chains, options: FixOptions, folder: Path) -> MendedRecords:
    """Mended copies of ``files`` in ``folder``, with every repair of ``chains`` that proves good.

    Args:
        files: the workload, in order.
    """
    return _Mending(files, options, folder).run(chains)


class _Mending:
    def __init__(self, files: Mapping[str, Path], options: FixOptions, folder: Path) -> None:
        self._files = files
        self._options = options
        self._folder = folder
        self._before = {(request.file, request.record): request for request in options.report.requests}
        self._hindered: dict[int, str] = {}

    def run(self, chains: Chains) -> MendedRecords:
        plan = {file: dict(lines) for file, lines in chains.items() if lines and file in self._files}
        for _ in range(_ROUNDS):
            copies = self._write(plan)
            if not copies:
                return MendedRecords(hindered=self._hindered)
            report, bad = self._relint(plan, copies)
            bad |= self._unproved(plan, report)
            if not bad:
                return MendedRecords(copies, plan, report, self._recovered(plan), self._hindered)
            for place, reason in bad.items():
                self._leave_out(plan, place, reason)
        for file, line in [(file, line) for file, lines in plan.items() for line in lines]:
            self._leave_out(plan, (file, line), "what is left of the fixes does not add up")
        return MendedRecords(hindered=self._hindered)

    def _leave_out(self, plan: dict[str, dict[int, Sequence[Repair]]], place: _Place, reason: str) -> None:
        file, line = place
        for repair in plan.get(file, {}).pop(line, ()):
            self._hindered.setdefault(id(repair.defect), reason)
        if file in plan and not plan[file]:
            del plan[file]

    def _write(self, plan: dict[str, dict[int, Sequence[Repair]]]) -> dict[str, Path]:
        copies = {}
        for number, file in enumerate([file for file in self._files if file in plan]):
            copy = self._folder / f"{number}{Path(file).suffix}"
            for line, reason in write_mended(self._files[file], plan[file], copy).items():
                self._leave_out(plan, (file, line), reason)
            if file in plan:
                copies[file] = copy
        return copies

    def _relint(
        self, plan: dict[str, dict[int, Sequence[Repair]]], copies: Mapping[str, Path]
    ) -> tuple[Report, dict[_Place, str]]:
        """The report on the mended files, and which records are not read as they were meant to be."""
        bad = {(file, line): "the mended record cannot be read" for file, lines in plan.items() for line in lines}

        def seen(record: Record | Unreadable) -> None:
            chain = plan.get(record.file, {}).get(record.line)
            if chain and isinstance(record, Record):
                if digest(record.body) == chain[-1].after:
                    bad.pop((record.file, record.line), None)
                else:
                    bad[record.file, record.line] = "the mended record is read as another request than was meant"

        return self._options.relint({file: copies.get(file, path) for file, path in self._files.items()}, seen), bad

    def _unproved(self, plan: dict[str, dict[int, Sequence[Repair]]], report: Report) -> dict[_Place, str]:
        """Mended requests that do not reuse what was promised; or all of them when others reuse less than before."""
        bad: dict[_Place, str] = {}
        worse = 0
        for request in report.requests:
            place = (request.file, request.record)
            if (before := self._before.get(place)) is None:
                continue
            gained = _gained(before, request)
            chain = plan.get(request.file, {}).get(request.record, ())
            promised = sum(repair.lost for repair in chain)
            if chain and gained < promised:
                bad[place] = f"it would bring back {max(0, gained):,} of {promised:,} tokens"
            worse += gained < 0 and not chain
        if worse and not bad:
            reason = f"{worse} other request{'s' if worse > 1 else ''} would reuse less than before"
            bad = {(file, line): reason for file, lines in plan.items() for line in lines}
        return bad

    def _recovered(self, plan: dict[str, dict[int, Sequence[Repair]]]) -> dict[int, int]:
        recovered: dict[int, int] = {}
        for repair in (repair for lines in plan.values() for chain in lines.values() for repair in chain):
            recovered[id(repair.defect)] = recovered.get(id(repair.defect), 0) + repair.lost
        return recovered


def _gained(before: RequestFigures, after: RequestFigures) -> int:
    """Tokens that are reused and were not; where the prompt became shorter or longer, those that need not be computed."""
    reused = after.cached_tokens - before.cached_tokens
    return max(reused, reused - (after.prompt_tokens - before.prompt_tokens))


def write_mended(source: Path, repairs: Mapping[int, Sequence[Repair]], copy: Path) -> dict[int, str]:
    """Copy a file with some of its lines mended, all others byte for byte.

    Args:
        repairs: by line, from 1.

    Returns:
        Lines that stay as they are, and why.

    Raises:
        OSError: a file cannot be read or written.
    """
    left: dict[int, str] = dict.fromkeys(repairs, _CHANGED)
    with source.open("rb") as lines, copy.open("wb") as out:
        if lines.peek(len(_GZIP)).startswith(_GZIP):
            return dict.fromkeys(repairs, "packed files are not rewritten")
        for number, line in enumerate(lines, start=1):
            if number not in repairs:
                out.write(line)
                continue
            try:
                out.write(_mended(line, repairs[number]))
                del left[number]
            except NotExactError as error:
                left[number] = str(error)
                out.write(line)
    return left


def _mended(line: bytes, chain: Sequence[Repair]) -> bytes:
    """
    Raises:
        NotExactError: the line cannot be mended exactly.
    """
    bom = line[: len(_BOM)] if line.startswith(_BOM) else b""
    try:
        text = line[len(bom) :].decode("utf-8")
        value = json.loads(text)
        for repair in chain:
            if digest(value) != repair.before:
                raise NotExactError(_CHANGED)
            value = applied(value, repair.changes)
            text = rewritten(text, repair.changes)
            if not same(json.loads(text), value):
                raise NotExactError("the record cannot be written back as it is read")
        return bom + text.encode("utf-8")
    except (ValueError, RecursionError):
        raise NotExactError(_CHANGED) from None
