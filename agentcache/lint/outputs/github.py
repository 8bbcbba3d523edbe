"""Workflow commands that GitHub shows beside the file.

Follows https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from agentcache.lint.finding import Finding
from agentcache.lint.outputs.outcome import Outcome
from agentcache.lint.outputs.words import one_line, visible

_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def write_github(outcome: Outcome, out: TextIO) -> None:
    """A command a finding, and one for each file that could not be read."""
    for name, reason in outcome.failed:
        file = [] if _is_address(name) else [("file", visible(name))]
        _command(out, "error", [*file, ("title", "agentcache lint")], visible(f"{name}: {reason}"))
    for finding in outcome.findings:
        level = "notice" if finding.verdict == "legitimate" else _LEVELS[finding.severity]
        server = f"{visible(finding.location.file)}: " if _is_address(finding.location.file) else ""
        _command(out, level, _properties(outcome, finding), server + one_line(finding))


def _command(out: TextIO, level: str, properties: Sequence[tuple[str, str]], message: str) -> None:
    shown = ",".join(f"{name}={_property(value)}" for name, value in properties)
    out.write(f"::{level} {shown}::{_data(message)}\n")


def _properties(outcome: Outcome, finding: Finding) -> list[tuple[str, str]]:
    title = ("title", f"agentcache {finding.code} {finding.name}")
    if _is_address(finding.location.file):  # of a server, which is no file of the repository
        return [title]
    column = outcome.sources.column_of(finding)
    return [
        ("file", visible(finding.location.file)),
        ("line", str(outcome.sources.line_of(finding) or 1)),
        *([("col", str(column))] if column is not None else []),
        title,
    ]


def _is_address(name: str) -> bool:
    return "://" in name


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
