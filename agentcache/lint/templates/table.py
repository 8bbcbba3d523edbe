"""The report for people, and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentcache.lint.finding import Finding
from agentcache.lint.outputs.words import visible
from agentcache.lint.templates.report import Outcome, Row, TemplateReport

_STYLES = {Outcome.YES: "green", Outcome.NO: "bold red", Outcome.REFUSED: "yellow", Outcome.NONE: "dim"}
_SEVERITIES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}


def write_full(report: TemplateReport, console: Console) -> None:
    """The table, each finding, and the answer."""
    _print(console, Text(f"Does {visible(report.name)} keep the cache?", "bold"))
    console.print()
    console.print(_table(report))
    console.print()
    for finding in report.findings:
        _write_finding(finding, console)
    _print(console, answer(report))


def write_concise(report: TemplateReport, console: Console) -> None:
    """A line a finding, and the answer."""
    for finding in report.findings:
        line = Text(finding.location.reference, "bold")
        line.append(": ", "default").append(finding.code, _SEVERITIES[finding.severity])
        _print(console, line.append(f" {visible(finding.message)} [{_lost(finding)}]", "default"))
    _print(console, answer(report))


def answer(report: TemplateReport) -> Text:
    """The last line."""
    counted = f" (counted with the tokenizer of {report.tokenizer}" if report.tokenizer else ""
    near = ", which is not the template's own: the figures are near ones" if report.estimated else ""
    behind = f"{counted}{near})." if counted else "."
    if report.keeps:
        return Text(f"Yes: each request begins with all of the one before it{behind}", "green")
    number = len(report.findings)
    return Text(f"No: {number} finding{'' if number == 1 else 's'}{behind}", "bold")


def as_data(report: TemplateReport) -> dict[str, Any]:
    """For JSON."""
    return {
        "template": report.name,
        "tokenizer": report.tokenizer,
        "estimated": report.estimated,
        "keeps": report.keeps,
        "properties": [
            {
                "property": row.question,
                "outcome": None if row.outcome is Outcome.NONE else row.outcome.value,
                "tokens_lost": row.lost,
                "of": row.of,
                "kept_by_agentcache": row.kept_here,
                "note": row.note or None,
            }
            for row in report.rows
        ],
        "findings": [finding.model_dump(mode="json") for finding in report.findings],
    }


def _table(report: TemplateReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("what is sent", no_wrap=True)
    table.add_column("kept", no_wrap=True)
    table.add_column("computed again", justify="right", no_wrap=True)
    table.add_column("", overflow="fold", style="dim")
    for row in report.rows:
        table.add_row(row.question, Text(row.outcome.value, _STYLES[row.outcome]), _cost(row), visible(_note(row)))
    return table


def _cost(row: Row) -> str:
    if row.lost is None:
        return ""
    return f"{row.lost:,} tokens" if row.of is None else f"{row.lost:,} of {row.of:,} tokens"


def _note(row: Row) -> str:
    return "; ".join(filter(None, [row.note, "agentcache loses nothing" if row.kept_here else ""]))


def _write_finding(finding: Finding, console: Console) -> None:
    head = Text(f"{finding.severity} {finding.code}", _SEVERITIES[finding.severity])
    _print(console, head.append(f" {finding.name}: ", "bold").append(visible(finding.message), "default"))
    place = Text("  --> ", "blue").append(f"{finding.location.file}:{finding.location.record}", "bold")
    if finding.location.path is not None:
        place.append(f"  (line of {finding.location.path})", "default")
    _print(console, place)
    for name, text, style in (("was", finding.before, "red"), ("now", finding.after, "green")):
        if text is not None:
            _print(console, Text("   | ", "blue").append(f"{name}  ", "dim").append(visible(text), style))
    _print(console, Text("   = ", "blue").append("lost: ", "bold").append(_lost(finding), "default"))
    if finding.help:
        _print(console, Text("   = ", "blue").append("help: ", "bold").append(visible(finding.help), "default"))
    console.print()


def _lost(finding: Finding) -> str:
    about = "about" if finding.tokens_lost_kind == "estimate" else "up to"
    return f"{about} {finding.tokens_lost or 0:,} tokens of this conversation"


def _print(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=True)
