"""Looks whether recorded answers say what was cached; a finding a file, not one for each answer."""

from __future__ import annotations

from dataclasses import dataclass

from agentcache.lint.finding import Finding, Location
from agentcache.lint.records import Record
from agentcache.lint.rules import ac904_usage

_HELP = (
    "record the usage of each answer, with its cached tokens: stream_options.include_usage where answers are streamed, "
    "and a server that reports them"
)


@dataclass(slots=True)
class _Counts:
    """Of one file.

    Attributes:
        silent: answers without figures of the prompt.
        vague: answers that have them, but not how many tokens were cached.
        first: line of the first that is either.
    """

    answers: int = 0
    silent: int = 0
    vague: int = 0
    first: int | None = None


class UsageWatch:
    """Takes records one by one; keeps a few numbers for each file."""

    def __init__(self) -> None:
        self._files: dict[str, _Counts] = {}

    def add(self, record: Record) -> None:
        """Count the answer of ``record``, if it has one."""
        usage = record.usage
        if usage is None:
            return
        counts = self._files.setdefault(record.file, _Counts())
        counts.answers += 1
        if usage.cached_tokens is not None:
            return
        if usage.prompt_tokens is None:
            counts.silent += 1
        else:
            counts.vague += 1
        if counts.first is None:
            counts.first = record.line

    def findings(self) -> list[Finding]:
        """One for each file with answers that do not say what was cached."""
        return [_finding(file, counts) for file, counts in self._files.items() if counts.first is not None]


def _finding(file: str, counts: _Counts) -> Finding:
    return Finding(
        code=ac904_usage.RULE.code,
        name=ac904_usage.RULE.name,
        severity="info",
        verdict="unavoidable",
        location=Location(file=file, record=counts.first),
        message=_message(counts),
        help=_HELP,
    )


def _message(counts: _Counts) -> str:
    told = []
    if counts.silent:
        told.append(f"{counts.silent:,} without usage")
    if counts.vague:
        told.append(f"{counts.vague:,} without cached tokens in their usage")
    return f"recorded answers: {counts.answers:,}, {', '.join(told)}: whether the cache was used cannot be seen"
