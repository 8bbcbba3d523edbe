"""One lint of some files from the beginning: each is read by its kind, and what its own comments suppress is left out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import AgentCacheError
from agentcache.lint.command.choices import Choices
from agentcache.lint.command.files import Input
from agentcache.lint.command.model import load_tokenizer, read_template, renderer
from agentcache.lint.command.progress import Meter
from agentcache.lint.command.sieve import ran
from agentcache.lint.comments import python_comments, template_comments
from agentcache.lint.finding import Finding
from agentcache.lint.linter import Linter, Repairs
from agentcache.lint.prompt import PromptMaker
from agentcache.lint.readers.kinds import Kind, kind_of, open_input
from agentcache.lint.records import Record, Unreadable
from agentcache.lint.report import PageShare, Report
from agentcache.lint.rules import ac903_unreadable
from agentcache.lint.source_text import decoded
from agentcache.lint.suppressions import Suppressions

if TYPE_CHECKING:
    from agentcache.lint.python import ModuleFinder

_HEAD = 256
"""Bytes that tell a script from requests."""

Seen = Callable[["Record | Unreadable"], None]


@dataclass
class Linted:
    """What came of it.

    Attributes:
        report: its findings are those that nothing suppresses, and what is wrong with suppressions.
        files: what was linted, in order.
        failed: what could not be read, and why.
        empty: files of folders that hold no requests; they were left out.
        blank: files that were named and hold nothing.
    """

    report: Report
    files: list[Input]
    suppressed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    blank: list[str] = field(default_factory=list)


class Workshop:
    """What every lint of a run needs: tokenizer and template are loaded once, when the first file asks for them.

    Args:
        note: hears what is done before.
    """

    def __init__(self, choices: Choices, note: Callable[[str], None]) -> None:
        self.choices = choices
        self.note = note

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.choices.tokenizer, self.note)

    @cached_property
    def maker(self) -> PromptMaker:
        file = self.choices.template
        template = read_template(file)
        tokenizer = self.tokenizer
        try:
            made = renderer(tokenizer, template)
        except AgentCacheError as error:
            if file is None:
                raise
            said = str(error).removeprefix("--template: ").removeprefix("the chat template, ")
            raise AgentCacheError(f"--template {file}: {said}") from None
        return PromptMaker(made, self.choices.page_sizes[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    Attributes:
        keep_requests: figures of each request are needed.
        everything: these are all files of the project.
        seen: called with every record before it is linted.
        repairs: hears how each request would have to read.
    """

    keep_requests: bool = False
    everything: bool = False
    seen: Seen | None = None
    repairs: Repairs | None = None


def lint(workshop: Workshop, files: Sequence[Input], wanted: Wanted, meter: Meter) -> Linted:
    """Lint ``files`` as one workload.

    Raises:
        AgentCacheError: no tokenizer, or no template.
    """
    return _Lint(workshop, wanted, meter).run(files)


class _Lint:
    def __init__(self, workshop: Workshop, wanted: Wanted, meter: Meter) -> None:
        self._workshop = workshop
        self._choices = workshop.choices
        self._wanted = wanted
        self._meter = meter
        self._linter: Linter | None = None
        self._suppressions = Suppressions(self._choices.config)
        self._texts: list[Finding] = []
        self._sources: list[str] = []
        self._modules: ModuleFinder | None = None
        self._linted = Linted(_no_report(self._choices), [])

    def run(self, files: Sequence[Input]) -> Linted:
        self._sources = [each.name for each in files if each.name.endswith(".py")]
        for each in files:
            try:
                if self._read(each):
                    self._linted.files.append(each)
                else:
                    self._linted.empty.append(each.name)
            except OSError as error:
                self._linted.failed.append((each.name, f"cannot be read: {error.strerror or error}"))
            except EOFError as error:  # a packed file that was cut off
                self._linted.failed.append((each.name, f"cannot be read: {error}"))
        report = self._linter.report() if self._linter is not None else _no_report(self._choices)
        found = self._suppressions.sieve([*report.findings, *self._texts])
        codes = self._choices.codes
        everything = self._wanted.everything and not self._linted.failed
        found += self._suppressions.findings(ran(self._choices), report.ignored, everything=everything)
        order = {each.name: index for index, each in enumerate(files)}
        found = [finding for finding in found if finding.code in codes]
        found.sort(key=lambda finding: _place(finding, order))
        self._linted.report = replace(report, findings=found)
        self._linted.suppressed = self._suppressions.suppressed
        return self._linted

    def _read(self, each: Input) -> bool:
        """Lint one input; ``False`` where a file of a folder holds nothing to lint."""
        with _opened(each) as raw, self._meter.reading(raw, each.name) as stream:
            kind = kind_of(each.name, stream.peek(_HEAD)[:_HEAD])
            if kind is Kind.RECORDS:
                return self._records(each, stream)
            self._source(each, kind, stream.read())
            return True

    def _records(self, each: Input, stream: BinaryIO) -> bool:
        records = open_input(stream, each.name)
        first = next(records, None)
        if not each.named and (first is None or isinstance(first, Unreadable)):
            return False
        if first is None:
            self._linted.blank.append(each.name)
        if self._linter is None:
            wanted = self._wanted
            self._linter = Linter(
                self._workshop.maker,
                self._choices.rules,
                self._choices.page_sizes,
                keep_requests=wanted.keep_requests,
                repairs=wanted.repairs,
            )
        for record in chain(() if first is None else (first,), records):
            if self._wanted.seen is not None:
                self._wanted.seen(record)
            self._linter.add(self._suppressions.checked(record) if isinstance(record, Record) else record)
            self._meter.request()
        return True

    def _source(self, each: Input, kind: Kind, content: bytes) -> None:
        try:
            source = decoded(content, each.name)
        except (SyntaxError, UnicodeDecodeError) as error:
            self._texts.append(ac903_unreadable.report(Unreadable(each.name, 1, f"it cannot be decoded: {error}")))
            return
        try:
            self._check(each, kind, source)
        except (RecursionError, MemoryError):
            self._texts.append(ac903_unreadable.report(Unreadable(each.name, 1, "it is nested too deep")))

    def _check(self, each: Input, kind: Kind, source: str) -> None:
        if kind is Kind.PYTHON:
            from agentcache.lint.python import ModuleFinder, check_python  # whoever lints requests needs none of it

            if self._modules is None:
                self._modules = ModuleFinder(self._sources)
            self._suppressions.add_comments(each.name, python_comments(source))
            self._texts += check_python(source, each.name, self._modules)
        else:
            from agentcache.lint.templates import template_findings

            self._suppressions.add_comments(each.name, template_comments(source))
            told = self._workshop.note if each.named else None
            self._texts += template_findings(each.name, source, self._workshop.tokenizer, told)


@contextmanager
def _opened(each: Input) -> Iterator[BinaryIO]:
    if each.is_stdin and each.path is None:
        yield standard_input()
        return
    with (each.path or Path(each.name)).open("rb") as stream:
        yield stream


def standard_input() -> BinaryIO:
    """
    Raises:
        OSError: there is none.
    """
    if sys.stdin is None:
        raise OSError("standard input is closed")
    return sys.stdin.buffer


def _place(finding: Finding, order: dict[str, int]) -> tuple[int, int, int, str]:
    """By file, record and what comes first in it; what is about no linted file comes last."""
    where = finding.location
    inside = where.token if where.token is not None else where.char or 0
    return order.get(where.file, len(order)), where.record or 0, inside, finding.code


def _no_report(choices: Choices) -> Report:
    return Report([], [], 0, 0, 0, 0, tuple(PageShare(size) for size in choices.page_sizes))
