"""From findings to mended files: what is mended, what is left as it is, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentcache.lint.finding import Finding
from agentcache.lint.fixes.diffs import text_diff
from agentcache.lint.fixes.outcome import Fixed, FixOptions, FixReport, Refused
from agentcache.lint.fixes.record_diff import records_diff
from agentcache.lint.fixes.record_files import MendedRecords, mend_records
from agentcache.lint.fixes.repairs import Defect, Repair, RepairLog
from agentcache.lint.fixes.text_files import applicable, mend_text
from agentcache.lint.fixes.writing import NotWrittenError, Original, scratch
from agentcache.lint.report import Report

_Told = Sequence[tuple[Finding, Sequence[Defect]]]


def apply_fixes(
    files: Mapping[str, Path], findings: Sequence[Finding], repairs: RepairLog, options: FixOptions
) -> FixReport:
    """Mend what can be mended, or (``options.diff``) show what that would change.

    Nothing is written before it was proved: a source still says the same but for its edits, a record is read as it was
    meant to be, and every request reuses what was promised.  A file is written whole or not at all.

    Args:
        files: all that were linted, in order: where each is, by the name that findings give it.
        findings: those that may be mended.
        repairs: what the linter noted while it found them.
    """
    fixing = _Fixing(files, repairs, options)
    allowed = ("safe", "unsafe") if options.unsafe else ("safe",)
    with scratch() as folder:
        fixing.records([f for f in findings if f.fix.applicability in allowed and not f.fix.edits], folder)
        for name in files:
            if mine := applicable(findings, name, unsafe=options.unsafe):
                fixing.text(name, mine, folder / f"text{Path(name).suffix}")
    needy = () if options.unsafe else [f for f in findings if f.fix.applicability == "unsafe"]
    return FixReport(
        remaining=fixing.remaining(),
        fixed=fixing.fixed,
        refused=fixing.refused,
        need_unsafe=len(needy),
        changed=fixing.changed,
        diff="".join(fixing.diffs),
        failed=fixing.failed,
        gained=fixing.gained if fixing.fixed else 0,
        written=not options.diff,
    )


@dataclass(slots=True)
class _Fixing:
    """
    Attributes:
        reports: of mended sources, by file.
        workload: of all files of records, where one was mended.
    """

    files: Mapping[str, Path]
    repairs: RepairLog
    options: FixOptions
    fixed: list[Fixed] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    diffs: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    reports: dict[str, Report] = field(default_factory=dict)
    workload: Report | None = None
    gained: int = 0

    # -- records --------------------------------------------------------------------------------------------------

    def records(self, findings: Sequence[Finding], folder: Path) -> None:
        told = []
        for finding in findings:
            if defects := list(self.repairs.defects_of(finding)):
                told.append((finding, defects))
            else:
                self.refused.append(Refused(finding, "there is nothing in the file that could be changed"))
        wanted = {id(defect) for _, defects in told for defect in defects}
        chains = {
            file: {line: begun for line, chain in lines.items() if (begun := list(_begun(chain, wanted)))}
            for file, lines in self.repairs.chains.items()
        }
        originals, unwritable = self._originals([file for file, lines in chains.items() if lines])
        mended = mend_records(self._linted_files, {file: chains[file] for file in originals}, self.options, folder)
        for file in mended.copies:
            if reason := self._written(file, originals[file], mended):
                unwritable[file] = reason
        if mended.copies:
            self.workload, self.gained = mended.report, mended.gained
        if unwritable.keys() & mended.copies.keys():
            self.workload = self.options.relint(self._linted_files, lambda _: None)
        self._tell(told, mended, unwritable)

    @property
    def _linted_files(self) -> dict[str, Path]:
        """The files that requests were read from."""
        linted = {request.file for request in self.options.report.requests}
        return {name: path for name, path in self.files.items() if name in linted}

    def _originals(self, names: Sequence[str]) -> tuple[dict[str, Original | None], dict[str, str]]:
        """Files as they are before they are read, and those that could not be written, with the reason."""
        originals: dict[str, Original | None] = {}
        unwritable: dict[str, str] = {}
        for name in names:
            try:
                originals[name] = None if self.options.diff else Original.of(self.files[name], name)
            except NotWrittenError as error:
                unwritable[name] = self._not_written(name, error)
        return originals, unwritable

    def _not_written(self, name: str, error: NotWrittenError) -> str:
        if name != "-":
            self.failed.append((name, str(error)))
        return str(error)

    def _written(self, file: str, original: Original | None, mended: MendedRecords) -> str | None:
        """Write or show a mended file; the reason when it could not be."""
        lines = sorted(mended.plan.chains[file])
        if original is None:
            self.diffs.append(records_diff(file, self.files[file], mended.copies[file], lines))
        else:
            try:
                original.replace(mended.copies[file])
            except NotWrittenError as error:
                return self._not_written(file, error)
        self.changed.append(file)
        return None

    def _tell(self, told: _Told, mended: MendedRecords, unwritable: Mapping[str, str]) -> None:
        """What became of each finding."""
        made: dict[int, int] = {}
        for file, lines in mended.plan.chains.items():
            for repair in (repair for chain in lines.values() for repair in chain if file in self.changed):
                made[id(repair.defect)] = made.get(id(repair.defect), 0) + 1
        for finding, defects in told:
            names = [id(defect) for defect in defects]
            if records := sum(made.get(name, 0) for name in names):
                tokens = sum(mended.recovered.get(name, 0) for name in names)
                self.fixed.append(Fixed(finding, records, tokens))
            else:
                self.refused.append(Refused(finding, self._obstacle(defects, mended, unwritable)))

    def _obstacle(self, defects: Sequence[Defect], mended: MendedRecords, unwritable: Mapping[str, str]) -> str:
        hindered = mended.plan.hindered
        reasons = [hindered[id(defect)] for defect in defects if id(defect) in hindered]
        reasons += [reason for defect in defects for reason in defect.hindered]
        reasons += [unwritable[defect.file] for defect in defects if defect.file in unwritable]
        return reasons[0] if reasons else "nothing is reused behind another defect before it, which stays"

    # -- sources --------------------------------------------------------------------------------------------------

    def text(self, name: str, findings: Sequence[Finding], copy: Path) -> None:
        """Mend a source, as far as it can be."""
        path = self.files[name]
        try:
            original = None if self.options.diff else Original.of(path, name)
            before = path.read_bytes()
            mended = mend_text(name, path, findings, self.options, copy)
            if mended.content is not None and original is not None:
                copy.write_bytes(mended.content)
                original.replace(copy)
        except NotWrittenError as error:
            reason = self._not_written(name, error)
            self.refused += [Refused(finding, reason) for finding in findings]
            return
        except OSError as error:
            self.failed.append((name, f"cannot be read: {error.strerror or error}"))
            return
        self.refused += [Refused(finding, reason) for finding, reason in mended.refused]
        if mended.content is None or mended.report is None:
            return
        self.fixed += [Fixed(finding, 1) for finding in mended.fixed]
        self.changed.append(name)
        self.reports[name] = mended.report
        if self.options.diff:
            self.diffs.append(text_diff(name, before, mended.content))

    def remaining(self) -> Report:
        """The first report, with what was linted again in place of what it says of the same files."""
        again = self.workload
        linted = self._linted_files.keys() if again is not None else set()
        kept = [f for f in self.options.report.findings if f.location.file not in linted | self.reports.keys()]
        new = [finding for report in self.reports.values() for finding in report.findings]
        order = {file: index for index, file in enumerate(self.files)}
        findings = [*kept, *(again.findings if again is not None else ()), *new]
        findings.sort(key=lambda finding: order.get(finding.location.file, -1))
        return replace(again or self.options.report, findings=findings)


def _begun(chain: Sequence[Repair], wanted: set[int]) -> Iterator[Repair]:
    """Repairs up to the first that is not to be made: behind that nothing would be reused."""
    for repair in chain:
        if id(repair.defect) not in wanted:
            return
        yield repair
