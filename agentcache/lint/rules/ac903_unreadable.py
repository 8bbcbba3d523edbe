"""AC903: a record that cannot be read; reported by the reader, judged by nobody."""

from __future__ import annotations

import re

from agentcache.lint.finding import Finding, Location
from agentcache.lint.readers.faults import WholeFile
from agentcache.lint.readers.kinds import Kind, is_prompt, kind_of
from agentcache.lint.records import Unreadable
from agentcache.lint.rules.base import Rule

_ITEM = re.compile(r"(\[\d+\]): ")
"""How reasons begin that are about an item of a list."""


def report(record: Unreadable) -> Finding:
    """The finding for a record that is no request, or for a file that holds none."""
    item = _ITEM.match(record.reason)
    subject = _subject(record) if item is None else f"item {item[1]} of the list (line {record.line})"
    return Finding(
        code=RULE.code,
        name=RULE.name,
        severity="error",
        location=Location(file=record.file, record=record.line),
        message=f"{subject} cannot be read: {record.reason if item is None else record.reason[item.end() :]}",
        help=_help(record),
    )


def _subject(record: Unreadable) -> str:
    kind = kind_of(record.file)
    if kind is not Kind.RECORDS:
        return f"the {'template' if kind is Kind.TEMPLATE else 'source'}"
    return "the file" if isinstance(record, WholeFile) or is_prompt(record.file) else f"line {record.line}"


def _help(record: Unreadable) -> str:
    kind, packed = kind_of(record.file), record.file.lower().endswith(".gz")
    if kind is Kind.TEMPLATE:
        return "mend the template: no request can be rendered with it"
    if kind is Kind.PYTHON:
        return "mend the source, or exclude it: it has to be Python, in the encoding that it declares"
    if is_prompt(record.file):
        return "a prompt file has to be text in UTF-8"
    if isinstance(record, WholeFile):
        return (
            f"{'packed by gzip, or as they are, ' if packed else ''}requests are JSON bodies, one a line or in a list; archives "
            "(.har), transcripts and traces of agentcache are read too"
        )
    one, others = ("an item", "items") if _ITEM.match(record.reason) else ("a line", "lines")
    return (
        f"{one} has to be the JSON body of a request (chat, responses, messages or completions), bare or under body or "
        f"request; the other {others} were linted"
    )


RULE = Rule(
    code="AC903",
    name="unreadable-record",
    what=(
        "A record of the file is not valid JSON, no request to a model, or a request that the chat template refuses; or a whole "
        "file (a source, a template, a prompt) cannot be read."
    ),
    why="It is left out, so what would be compared with it is not, and the figures of the others may be too low.",
    bad='{"messages": [{"role": "user", "content": "Hi"',
    good='{"messages": [{"role": "user", "content": "Hi"}]}',
    fix_safety="Nothing to fix in the prompt: mend the file, or the program that wrote it.",
)
