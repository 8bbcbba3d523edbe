"""One run: files are linted, what is known is left out, the rest is written, and the exit code says what there was."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from agentcache.lint.baseline import Baseline, Looked
from agentcache.lint.command.choices import Choices
from agentcache.lint.command.files import Input, Inputs, inputs
from agentcache.lint.command.linting import Linted, Seen, Wanted, Workshop, lint, standard_input
from agentcache.lint.command.progress import Meter
from agentcache.lint.command.sieve import CLEAN, ERROR, exit_code, ran, unreadable, worth_reporting
from agentcache.lint.command.targets import check_targets
from agentcache.lint.command.writing import note, write
from agentcache.lint.finding import Finding
from agentcache.lint.fixes.outcome import FixReport
from agentcache.lint.outputs.outcome import Outcome
from agentcache.lint.outputs.sources import Sources
from agentcache.lint.outputs.words import count, visible
from agentcache.lint.report import Report


def lint_command(choices: Choices) -> int:
    """
    Returns:
        The exit code.

    Raises:
        AgentCacheError: nothing to lint, no tokenizer, no baseline, an output that cannot be written.
    """
    options = choices.options
    if choices.baseline is not None and options.write_baseline is None:
        Baseline(choices.baseline, lambda _: None).compare((), Looked())  # that it is one is known before the work
    found = inputs(choices)
    check_targets(choices, found.files)
    again = options.fix or options.diff or options.stdin_filename is not None
    with _readable_again(found.files, needed=again) as readable:
        return _Run(choices, replace(found, files=readable)).result()


class _Run:
    def __init__(self, choices: Choices, found: Inputs) -> None:
        self._choices = choices
        self._options = choices.options
        self._found = found
        self._files = files = found.files
        self._workshop = Workshop(choices, self._note)
        self._sources = Sources({each.name: each.path for each in files if each.path is not None})
        self._fixing = self._options.fix or self._options.diff

    def result(self) -> int:
        linted, fixes = self._linted()
        failed = [*self._found.failed, *linted.failed, *(() if fixes is None else fixes.failed)]
        for name, reason in failed:
            note(f"error: {name}: {reason}")
        for sentence in (*self._found.notes, *(f"{name} holds no requests" for name in linted.blank)):
            self._note(sentence)
        if linted.empty:
            self._note(f"left out, since the first record is no request: {_listed(linted.empty)}")
        report = linted.report if fixes is None else fixes.remaining
        findings = worth_reporting(self._choices, report.findings)
        if self._options.write_baseline is not None:
            return self._write_baseline(findings, bool(failed))
        outcome = self._outcome(findings, report, linted)
        outcome = replace(outcome, fixes=fixes, failed=failed)
        write(outcome, self._choices)
        if fixes is not None:
            self._tell_fixes(fixes)
        return exit_code(self._choices, outcome, failed=bool(failed))

    def _linted(self) -> tuple[Linted, FixReport | None]:
        meter = Meter(Console(stderr=True), False if self._options.quiet else self._options.progress, self._bytes())
        try:
            if not self._fixing:
                return lint(self._workshop, self._files, self._wanted(), meter), None
            return self._mended(meter)
        finally:
            meter.close()

    def _wanted(self) -> Wanted:
        data = self._choices.output_format in {"json", "jsonl"}
        return Wanted(
            keep_requests=self._fixing or (data and self._options.statistics), everything=not self._options.files
        )

    def _mended(self, meter: Meter) -> tuple[Linted, FixReport]:
        from agentcache.lint.fixes.apply import apply_fixes
        from agentcache.lint.fixes.outcome import FixOptions
        from agentcache.lint.fixes.repairs import RepairLog

        def relint(files: Mapping[str, Path], seen: Seen) -> Report:
            again = [Input(name, path=path) for name, path in files.items()]
            wanted = replace(self._wanted(), everything=False, seen=seen)
            return lint(self._workshop, again, wanted, meter).report

        repairs = RepairLog()
        linted = lint(self._workshop, self._files, replace(self._wanted(), repairs=repairs), meter)
        paths = {each.name: each.path or Path(each.name) for each in linted.files}
        asked = FixOptions(
            relint=relint, report=linted.report, unsafe=self._options.unsafe_fixes, diff=self._options.diff
        )
        findings = worth_reporting(self._choices, linted.report.findings)
        new = self._outcome(findings, linted.report, linted).findings
        fixes = apply_fixes(paths, new, repairs, asked)
        return linted, fixes

    def _outcome(self, findings: Sequence[Finding], report: Report, linted: Linted) -> Outcome:
        files = [each.name for each in linted.files]
        outcome = Outcome(findings, report, files, self._sources, linted.suppressed, fail_on=self._choices.fail_on)
        if self._choices.baseline is None:
            return outcome
        reported = set(map(id, findings))
        looked = Looked(
            files=files,
            codes=ran(self._choices),
            folders=[name for name in self._options.files if os.path.isdir(name)],
            everything=not (self._options.files or self._found.failed or linted.failed),
            hidden=[finding for finding in report.findings if id(finding) not in reported],
        )
        compared = Baseline(self._choices.baseline, self._sources.line).compare(findings, looked)
        gone = [known.words for known in compared.gone]
        return replace(outcome, findings=compared.new, known=compared.known, gone=gone)

    def _write_baseline(self, findings: Sequence[Finding], failed: bool) -> int:
        path: Path = self._options.write_baseline
        for finding in findings:
            if unreadable([finding]):
                note(f"error: {finding.location.reference}: {finding.message}")
        if failed or unreadable(findings):
            note(f"error: --write-baseline {path}: not written, since not everything could be read")
            return ERROR
        written = Baseline(path, self._sources.line).write(findings)
        self._note(f"{count(written, 'finding')} written to {path}")
        return CLEAN

    def _tell_fixes(self, fixes: FixReport) -> None:
        if self._options.quiet:
            return
        for refused in fixes.refused:
            where = refused.finding.location.reference
            note(f"{where}: {refused.finding.code} not applied: {refused.reason}")
        if fixes.summary:
            note(fixes.summary)

    def _bytes(self) -> int | None:
        """Of all files; ``None`` where that cannot be told before."""
        if any(each.is_stdin for each in self._files):
            return None
        paths = [each.path or each.name for each in self._files]
        return sum(os.path.getsize(path) for path in paths if os.path.isfile(path))

    def _note(self, sentence: str) -> None:
        if not self._options.quiet:
            note(sentence)


@contextmanager
def _readable_again(files: list[Input], *, needed: bool) -> Iterator[list[Input]]:
    """Standard input as a file, where it has to be read more than once."""
    if not needed or not any(each.is_stdin for each in files):
        yield files
        return
    with tempfile.TemporaryDirectory() as folder:
        spooled = Path(folder, "stdin")
        with spooled.open("wb") as copy:
            shutil.copyfileobj(standard_input(), copy)
        yield [replace(each, path=spooled) if each.is_stdin else each for each in files]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(visible(name) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3:,} more"
