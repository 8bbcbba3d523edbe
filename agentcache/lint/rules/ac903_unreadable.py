"""AC903: a record that cannot be read; reported by the reader, judged by nobody."""

from __future__ import annotations

from agentcache.lint.finding import Finding, Location
from agentcache.lint.records import Unreadable
from agentcache.lint.rules.base import Rule


def report(record: Unreadable) -> Finding:
    """The finding for a record that is no request."""
    return Finding(
        code=RULE.code,
        name=RULE.name,
        severity="error",
        location=Location(file=record.file, record=record.line),
        message=f"line {record.line} cannot be read: {record.reason}",
        help=(
            "a line has to be the JSON body of a request (chat, responses, messages or completions), bare or under body or "
            "request; the other lines were linted"
        ),
    )


RULE = Rule(
    code="AC903",
    name="unreadable-record",
    what="A record of the file is not valid JSON, no request to a model, or a request that the chat template refuses.",
    why="The record is left out, so what would be compared with it is not, and the figures of the others may be too low.",
    bad='{"messages": [{"role": "user", "content": "Hi"',
    good='{"messages": [{"role": "user", "content": "Hi"}]}',
    fix_safety="Nothing to fix in the prompt: mend the file, or the program that wrote it.",
)
