"""The report for people, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from agentcache.lint.finding import Finding
from agentcache.lint.outputs.console import WIDEST, comparison
from agentcache.lint.outputs.words import count, visible
from agentcache.lint.templates.report import Outcome, Row, TemplateReport

_STYLES = {Outcome.YES: "green", Outcome.NO: "bold red", Outcome.REFUSED: "yellow", Outcome.NONE: "dim"}
_HEADINGS = ("what is sent", "kept", "computed again")
_GAP = "  "
_SEVERITIES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}


def write_full(report: TemplateReport, console: Console) -> None:
    """The table, each finding, and the answer."""
    _print(console, Text(f"Does {visible(report.name)} keep the cache?", "bold"))
    console.print()
    _write_table(report, console)
    console.print()
    for finding in _by_line(report):
        _write_finding(finding, console)
    _print(console, answer(report))


def write_concise(report: TemplateReport, console: Console) -> None:
    """A line a finding, and the answer."""
    for finding in _by_line(report):
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


def _write_table(report: TemplateReport, console: Console) -> None:
    """A line a property, however wide: notes are last, and what several rows have to say stands once, below.

    ::

        what is sent                    kept  computed again
        reasoning replayed, with tools  no      309 of 882 tokens  [1]
        replies as they were generated  no      125 of 225 tokens  [1]

        [1] agentcache loses nothing
    """
    notes = [_notes(row) for row in report.rows]
    times = Counter(note for of_row in notes for note in of_row)
    numbers = {note: f"[{number}]" for number, note in enumerate((n for n in times if times[n] > 1), 1)}
    lines = [(row.question, row.outcome.value, _cost(row)) for row in report.rows]
    widths = [max(map(cell_len, column)) for column in zip(_HEADINGS, *lines, strict=True)]
    _print(console, Text(_aligned(_HEADINGS, widths), "dim"))
    for row, cells, of_row in zip(report.rows, lines, notes, strict=True):
        text = Text(_aligned(cells, widths))
        start = widths[0] + len(_GAP)
        text.stylize(_STYLES[row.outcome], start, start + len(row.outcome.value))
        said = "; ".join(numbers.get(note, note) for note in of_row)
        text.append(f"{_GAP}{visible(said)}" if said else "", "dim")
        text.rstrip()
        _print(console, text)
    if numbers:
        console.print()
    for note, number in numbers.items():
        _print(console, Text(f"{number} {visible(note)}", "dim"))


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    question, kept, cost = cells
    return f"{question:<{widths[0]}}{_GAP}{kept:<{widths[1]}}{_GAP}{cost:>{widths[2]}}"


def _cost(row: Row) -> str:
    if row.lost is None:
        return ""
    return count(row.lost, "token") if row.of is None else f"{row.lost:,} of {count(row.of, 'token')}"


def _notes(row: Row) -> list[str]:
    return [*filter(None, row.note.split("; ")), *(["agentcache loses nothing"] if row.kept_here else [])]


def _write_finding(finding: Finding, console: Console) -> None:
    head = Text(f"{finding.severity} {finding.code}", _SEVERITIES[finding.severity])
    _print(console, head.append(f" {finding.name}: ", "bold").append(visible(finding.message), "default"))
    place = Text("  --> ", "blue").append(f"{finding.location.file}:{finding.location.record}", "bold")
    if finding.location.path is not None:
        place.append(f"  (line of {finding.location.path})", "default")
    _print(console, place)
    for line in comparison(finding, console.width if console.is_terminal else WIDEST):
        _print(console, Text("   | ", "blue").append_text(line))
    _print(console, Text("   = ", "blue").append("lost: ", "bold").append(_lost(finding), "default"))
    if finding.help:
        _print(console, Text("   = ", "blue").append("help: ", "bold").append(visible(finding.help), "default"))
    console.print()


def _lost(finding: Finding) -> str:
    about = "about" if finding.tokens_lost_kind == "estimate" else "up to"
    return f"{about} {count(finding.tokens_lost or 0, 'token')} of this conversation"


def _by_line(report: TemplateReport) -> list[Finding]:
    """As they stand in the template; one with tools is another."""
    return sorted(
        report.findings, key=lambda f: (f.location.file, f.location.path or "", f.location.record or 0, f.code)
    )


def _print(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=True)
