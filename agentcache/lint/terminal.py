"""Reports for people.  Colours only where the output is a terminal."""

from __future__ import annotations

import unicodedata
from collections import Counter

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from agentcache.chat.text import common_length
from agentcache.lint.finding import Finding
from agentcache.lint.formats import exact_loss, loss_words, one_line
from agentcache.lint.linter import Report
from agentcache.lint.rules.base import Rule

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}


def write_full(report: Report, console: Console) -> None:
    """A paragraph a finding, and a line of summary."""
    for finding in report.findings:
        _write_finding(finding, console)
    _write_summary(report, console)


def write_concise(report: Report, console: Console) -> None:
    """A line a finding, and a line of summary."""
    for finding in report.findings:
        line = Text()
        line.append(finding.location.reference, "bold").append(": ")
        line.append(finding.code, _STYLES[finding.severity]).append(f" {visible(one_line(finding))}")
        _print(console, line)
    _write_summary(report, console)


def write_statistics(report: Report, console: Console) -> None:
    """Findings and lost tokens by rule."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("code", "name", "findings", "tokens lost"):
        table.add_column(heading, justify="left" if heading in ("code", "name") else "right")
    counts = Counter((finding.code, finding.name) for finding in report.findings)
    for (code, name), count in sorted(counts.items()):
        lost = sum(finding.tokens_lost or 0 for finding in report.findings if finding.code == code)
        table.add_row(code, name, f"{count:,}", f"{lost:,}")
    if counts:
        console.print(table)
    shown = f"{report.count:,} requests, {report.sessions:,} sessions, {report.prompt_tokens:,} prompt tokens, "
    _print(console, Text(f"{shown}{report.cached_tokens:,} of them served by a warm cache as the prompts are"))


def write_rule(rule: Rule, console: Console) -> None:
    """A rule's page of the manual."""
    _print(console, Text.assemble((rule.code, "bold"), " ", rule.name))
    for heading, body in (
        ("What it reports", rule.what),
        ("Why it matters", rule.why),
        ("Bad", rule.bad),
        ("Good", rule.good),
        ("Fix", rule.fix_safety),
    ):
        console.print(Text(f"\n{heading}", "bold"))
        style = {"Bad": "red", "Good": "green"}.get(heading, "")
        if style:  # examples are copied: they are not wrapped
            for line in body.splitlines():
                _print(console, Text(f"  {line}", style))
        else:
            console.print(Padding(Text(body), (0, 0, 0, 2), expand=False))


def _write_finding(finding: Finding, console: Console) -> None:
    where = finding.location
    style = _STYLES[finding.severity]
    suspected = " (suspected)" if finding.confidence == "suspected" else ""
    head = Text.assemble((f"{finding.severity} {finding.code}", style), (f" {finding.name}{suspected}", "bold"))
    _print(console, head.append(f": {visible(finding.message)}"))
    place = Text("  --> ", "blue").append(where.reference, "bold")
    if where.path is not None:
        place.append(f"  {where.path}, character {where.char} (token {where.token}, page {where.page})")
    _print(console, place)
    for line in _comparison(finding):
        _print(console, Text("   | ", "blue").append_text(line))
    if finding.tokens_lost is not None:
        sessions = finding.shared_by or 0
        spread = f", in {sessions} sessions" if sessions > 1 else ""
        _print(
            console,
            Text("   = ", "blue").append("lost: ", "bold").append(loss_words(finding).removesuffix(" lost") + spread),
        )
    if finding.help:
        _print(console, Text("   = ", "blue").append("help: ", "bold").append(visible(finding.help)))
    console.print()


def _comparison(finding: Finding) -> list[Text]:
    """What both requests say, one under the other, and a line that marks what differs."""
    here = finding.location.reference
    if finding.after is None:
        return []
    after = visible(finding.after)
    if finding.before is None or finding.compared_to is None:
        return [Text(f"{here}  ", "dim").append(after)]
    before = visible(finding.before)
    width = max(cell_len(here), cell_len(finding.compared_to)) + 2
    start = common_length(before, after)
    behind = common_length(before[start:][::-1], after[start:][::-1])
    lines = []
    for name, text, style in ((finding.compared_to, before, "red"), (here, after, "green")):
        line = Text(name + " " * (width - cell_len(name)), "dim")
        line.append(text[:start], "default").append(text[start : len(text) - behind], f"bold {style}")
        lines.append(line.append(text[len(text) - behind :], "default"))
    longest = max(cell_len(text[start : len(text) - behind]) for text in (before, after))
    lines.append(Text(" " * (width + cell_len(after[:start])) + "^" * max(1, longest), "bold"))
    return lines


def _write_summary(report: Report, console: Console) -> None:
    requests = _count(report.count, "request")
    sessions = _count(report.sessions, "session")
    if not report.findings:
        _print(console, Text(f"No findings in {requests} of {sessions}.", "green"))
        return
    line = Text(f"{_count(len(report.findings), 'finding')} in {requests} of {sessions}", "bold")
    if lost := exact_loss(report):
        line.append(f": {lost:,} of {report.prompt_tokens:,} prompt tokens are computed again for no reason")
    _print(console, line.append("."))


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def visible(text: str) -> str:
    """``text`` with line ends and control characters as signs: prompts may hold what would command the terminal."""
    signs = {"\n": "⏎", "\t": "⇥", "\r": "␍"}
    return "".join(
        signs.get(char) or (char if unicodedata.category(char)[0] != "C" else f"\\u{ord(char):04x}") for char in text
    )


def _print(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=True)
