"""Workflow commands that GitHub shows beside the file.

Follows https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from typing import TextIO

from agentcache.lint.finding import Finding
from agentcache.lint.outputs.outcome import Outcome
from agentcache.lint.outputs.words import one_line, visible

_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def write_github(outcome: Outcome, out: TextIO) -> None:
    """A command a finding."""
    for finding in outcome.findings:
        level = "notice" if finding.verdict == "legitimate" else _LEVELS[finding.severity]
        shown = ",".join(f"{name}={_property(value)}" for name, value in _properties(outcome, finding))
        out.write(f"::{level} {shown}::{_data(one_line(finding))}\n")


def _properties(outcome: Outcome, finding: Finding) -> list[tuple[str, str]]:
    column = outcome.sources.column_of(finding)
    return [
        ("file", visible(finding.location.file)),
        ("line", str(outcome.sources.line_of(finding) or 1)),
        *([("col", str(column))] if column is not None else []),
        ("title", f"agentcache {finding.code} {finding.name}"),
    ]


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
