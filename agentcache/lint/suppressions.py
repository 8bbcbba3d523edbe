"""Findings that are known and left as they are: comments, entries of records, entries of the configuration.

Each names codes (or their beginnings) and gives a reason; what does not is reported (AC902) and counts for nothing.  What
suppresses nothing although its rules ran is reported too (AC901).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from agentcache.lint.comments import IgnoreComment
from agentcache.lint.config import ConfigFile, Suppress
from agentcache.lint.finding import Edit, Finding, Fix, Location
from agentcache.lint.globs import matcher
from agentcache.lint.records import Record
from agentcache.lint.rules import RULES, ac901_unused_suppression, ac902_unknown_code

_SHOWN = Fix()
_LIST_HELP = "agentcache lint rule lists the rules"


def is_known(code: str) -> bool:
    """Whether any rule's code begins so."""
    return bool(code) and any(rule.code.startswith(code.upper()) for rule in RULES)


def nearest(code: str) -> str:
    """``; did you mean AC101?`` where a rule's code looks like it."""
    near = difflib.get_close_matches(code.upper(), [rule.code for rule in RULES], 1, 0.7)
    return f"; did you mean {near[0]}?" if near else ""


@dataclass(slots=True)
class _Entry:
    """A comment or an entry of the configuration.

    Attributes:
        where: where it is written.
        written: what it says.
        covers: whether it is about a finding (of its codes).
        used: codes that it suppressed something of.
        judged: it is known whether it is of use: everything that it is about was linted.
    """

    codes: tuple[str, ...]
    where: Location
    written: str
    covers: Callable[[Finding], bool]
    fix: Fix = _SHOWN
    used: set[str] = field(default_factory=set)
    judged: bool = True

    def take(self, finding: Finding) -> bool:
        """Whether it suppresses ``finding``; remembered."""
        hits = [code for code in self.codes if finding.code.startswith(code)] if self.covers(finding) else []
        self.used.update(hits)
        return bool(hits)


class Suppressions:
    """Filled while files are read; then sieves what was found.

    Of records only those are kept that ask for something impossible, one a file and code.

    Args:
        config: whose ``suppress`` counts.
    """

    def __init__(self, config: ConfigFile | None) -> None:
        self._comments: dict[str, list[_Entry]] = {}
        self._config = config
        self._configured = [_configured(config, entry, nth) for nth, entry in enumerate(_entries(config), 1)]
        self._faults: dict[tuple[str, int | None, str], Finding] = {}
        self.suppressed = 0
        """Findings that were left out."""

    def add_comments(self, file: str, comments: Iterable[IgnoreComment]) -> None:
        """What a source or a template says."""
        for comment in comments:
            where = Location(file=file, record=comment.line, char=comment.column)
            written = f"agentcache: {'ignore' if comment.covers else 'ignore-file'}[{', '.join(comment.codes)}]"
            codes = tuple(self._usable(comment.codes, comment.reason, where, written))
            if codes:
                entry = _Entry(codes, where, f"{written} {comment.reason}", _lines(comment.covers))
                entry.fix = _removed(file, comment) if codes == comment.codes else _SHOWN
                self._comments.setdefault(file, []).append(entry)

    def checked(self, record: Record) -> Record:
        """``record`` with only those of its requests to be ignored that count."""
        if not record.ignored:
            return record
        good = {}
        for code, reason in record.ignored.items():
            where = Location(file=record.file, record=record.line, path="agentcache_lint.ignore")
            written = f'"{code}": "{reason}"'
            usable = list(self._usable((code.upper(),), reason, where, written, once=True))
            good.update(dict.fromkeys(usable, reason))
        return replace(record, ignored=good)

    def sieve(self, findings: Iterable[Finding]) -> list[Finding]:
        """Those that nothing suppresses."""
        return [finding for finding in findings if not self._takes(finding)]

    def findings(
        self, ran: Collection[str], asked: Mapping[tuple[str, int, str], bool], *, everything: bool
    ) -> Iterator[Finding]:
        """What is wrong with the suppressions themselves.

        Args:
            ran: codes of the rules that ran.
            asked: what records asked not to be told of (file, record, code) -> whether there was any.
            everything: all files of the project were linted, so that entries of the configuration can be judged.
        """
        yield from self._faults.values()
        for entry in (*(entry for entries in self._comments.values() for entry in entries), *self._configured):
            if not (entry.judged or everything):
                continue
            unused = [code for code in entry.codes if code not in entry.used and _all_ran(code, ran)]
            if unused:
                whole = len(unused) == len(entry.codes)
                names = ", ".join(unused)
                help = "remove the suppression" if whole else f"remove {names} from the suppression"
                fix = entry.fix if whole else _SHOWN
                yield ac901_unused_suppression.report(entry.where, names, entry.written, fix, help)
        yield from _unused_in_records(ran, asked)

    def _takes(self, finding: Finding) -> bool:
        entries = [*self._comments.get(finding.location.file, ()), *self._configured]
        taken = [entry.take(finding) for entry in entries]  # all of them are of use
        self.suppressed += any(taken)
        return any(taken)

    def _usable(
        self, codes: Iterable[str], reason: str, where: Location, written: str, *, once: bool = False
    ) -> Iterator[str]:
        """The codes that count; what is wrong with the others is noted.

        Args:
            once: of a file with many records the first that says so is reported.
        """
        codes = tuple(codes)
        for code in codes or ("",):
            if not code:
                message, help = "a suppression names no code", "write the codes in brackets: ignore[AC101] why"
            elif not is_known(code):
                message, help = f"got {code!r}, expected the code of a rule{nearest(code)}", _LIST_HELP
            elif not reason.strip():
                message = f"{code} is suppressed without a reason, which does not count"
                help = "say behind the code why it is left as it is"
            else:
                yield code
                continue
            key = (where.file, None if once else where.record, code)
            self._faults.setdefault(key, ac902_unknown_code.report(where, written, message, help))


def _entries(config: ConfigFile | None) -> list[Suppress]:
    return [] if config is None else config.config.suppress


def _configured(config: ConfigFile | None, entry: Suppress, nth: int) -> _Entry:
    assert config is not None
    matches = None if entry.file is None else matcher([entry.file], config.root)
    path = None if entry.path is None else re.compile(".*".join(re.escape(part) for part in entry.path.split("*")))

    def covers(finding: Finding) -> bool:
        where = finding.location
        return (matches is None or matches(where.file)) and (
            path is None or path.fullmatch(where.path or "") is not None
        )

    line = config.line_of(f"[[{config.table}.suppress]]", nth) or config.line_of(entry.reason)
    where = Location(file=config.shown, record=line, path=f"{config.table}.suppress[{nth - 1}]")
    codes = (entry.code.upper(),) if is_known(entry.code) else ()
    return _Entry(codes, where, f"{entry.code}: {entry.reason}", covers, judged=False)


def _lines(covers: tuple[int, int] | None) -> Callable[[Finding], bool]:
    if covers is None:
        return lambda finding: True
    first, last = covers
    return lambda finding: first <= (finding.location.record or 0) <= last


def _removed(file: str, comment: IgnoreComment) -> Fix:
    if comment.removal is None:
        return _SHOWN
    edit = Edit(
        file=file, record=comment.line, path="", start=comment.removal.start, end=comment.removal.end, content=""
    )
    return Fix(applicability="safe", edits=(edit,))


def _all_ran(code: str, ran: Collection[str]) -> bool:
    """Whether every rule that ``code`` could mean has looked; optional ones only when they are named."""
    meant = [rule.code for rule in RULES if rule.code.startswith(code) and (rule.code == code or not rule.optional)]
    return bool(meant) and all(each in ran for each in meant)


def _unused_in_records(ran: Collection[str], asked: Mapping[tuple[str, int, str], bool]) -> Iterator[Finding]:
    """One a file and code, and only where no record of the file had any use of it."""
    used: dict[tuple[str, str], bool] = {}
    first: dict[tuple[str, str], int] = {}
    for (file, line, code), was in asked.items():
        used[file, code] = used.get((file, code), False) or was
        first.setdefault((file, code), line)
    for (file, code), was in used.items():
        if not was and _all_ran(code, ran):
            where = Location(file=file, record=first[file, code], path="agentcache_lint.ignore")
            help = "leave it out of agentcache_lint.ignore"
            yield ac901_unused_suppression.report(where, code, f'"{code}"', _SHOWN, help)


def unknown_in_config(config: ConfigFile, code: str, key: str) -> Finding:
    """AC902 for a code that the configuration names at ``key``."""
    where = Location(file=config.shown, record=config.line_of(code) or None, path=f"{config.table}.{key}")
    message = f"got {code!r}, expected the beginning of a rule's code{nearest(code)}"
    return ac902_unknown_code.report(where, f'{key}: "{code}"', message, _LIST_HELP)
