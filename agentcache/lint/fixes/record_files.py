"""Mends files of records, and proves it: what was written is read again, linted again, and must reuse what was promised.

::

    chains of repairs ─► mended copies ─► same reader, same linter ─► every request as it was meant to be,
           ▲                                                          none reuses less, and most of what was lost is back
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
from agentcache.lint.fixes.plan import Chains, Gains, Plan, Spot
from agentcache.lint.fixes.repairs import Repair, digest
from agentcache.lint.fixes.spreading import spread
from agentcache.lint.records import Record, Unreadable
from agentcache.lint.report import Report

_ROUNDS = 6
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_CHANGED = "the record is no line of the file as it is now"


@dataclass(slots=True)
class MendedRecords:
    """What can be written.

    Attributes:
        plan: the repairs that are made, and why others were left out.
        copies: mended copies of the files that change, by name.
        report: of the mended files.
        recovered: tokens that mended requests reuse now and did not, by ``id`` of the defect.
        gained: tokens over all requests.
    """

    plan: Plan
    copies: dict[str, Path] = field(default_factory=dict)
    report: Report | None = None
    recovered: dict[int, int] = field(default_factory=dict)
    gained: int = 0


def mend_records(files: Mapping[str, Path], chains: Chains, options: FixOptions, folder: Path) -> MendedRecords:
    """Mended copies of ``files`` in ``folder``, with every repair of ``chains`` that proves good.

    Args:
        files: the workload, in order.
    """
    before = {Spot(request.file, request.record): request for request in options.report.requests}
    plan = Plan({file: lines for file, lines in chains.items() if file in files})
    for _ in range(_ROUNDS):
        copies = _written(files, plan, folder)
        if not copies:
            return MendedRecords(plan)
        report, misread = _relinted({file: copies.get(file, path) for file, path in files.items()}, plan, options)
        for spot, reason in misread.items():
            plan.leave_out(spot, reason)
        gains = Gains(plan, before, report.requests)
        if misread or spread(plan, files, gains.others_worse()):
            continue
        if not gains.cut():
            return MendedRecords(plan, copies, report, gains.recovered(), gains.total)
    for spot in plan.spots():
        plan.leave_out(spot, "what is left of the fixes does not add up")
    return MendedRecords(plan)


def _written(files: Mapping[str, Path], plan: Plan, folder: Path) -> dict[str, Path]:
    """Mended copies of the files that the plan changes."""
    copies = {}
    for number, file in enumerate([file for file in files if file in plan.chains]):
        copy = folder / f"{number}{Path(file).suffix}"
        for line, reason in write_mended(files[file], plan.chains[file], copy).items():
            plan.leave_out(Spot(file, line), reason)
        if file in plan.chains:
            copies[file] = copy
    return copies


def _relinted(files: Mapping[str, Path], plan: Plan, options: FixOptions) -> tuple[Report, dict[Spot, str]]:
    """The report on the mended files, and which records are not read as they were meant to be."""
    misread = dict.fromkeys(plan.spots(), "the mended record cannot be read")

    def seen(record: Record | Unreadable) -> None:
        spot = Spot(record.file, record.line)
        chain = plan.chain(spot)
        if not chain or not isinstance(record, Record):
            return
        if digest(record.body) == chain[-1].after or not chain[-1].after:
            misread.pop(spot, None)
        else:
            misread[spot] = "the mended record is read as another request than was meant"

    return options.relint(files, seen), misread


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
