"""Reports for people.  Colours only where the output is a terminal."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentcache.chat.text import common_length
from agentcache.lint.finding import Finding
from agentcache.lint.outputs.outcome import Outcome
from agentcache.lint.outputs.totals import by_code, share
from agentcache.lint.outputs.words import count, loss_words, one_line, place_of, reference_of, visible
from agentcache.lint.readers.kinds import Kind, kind_of

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
WIDEST = 160
"""Cells of a line where there is no terminal that says how wide it is."""
_LONGEST_LABEL = 40
_WIDEST_TABLE = 1000
_SHORT = {"exact": "", "upper_bound": "≤ ", "estimate": "≈ ", None: ""}


def write_full(outcome: Outcome, console: Console, *, quiet: bool) -> None:
    """A paragraph a finding, and a line of summary."""
    for finding in outcome.findings:
        _write_finding(finding, console)
    if not quiet:
        _write_summary(outcome, console)


def write_concise(outcome: Outcome, console: Console, *, quiet: bool) -> None:
    """A line a finding, and a line of summary."""
    for finding in outcome.findings:
        line = Text()
        line.append(reference_of(finding), "bold").append(": ")
        line.append(finding.code, _STYLES[finding.severity]).append(f" {one_line(finding)}")
        _print(console, line)
    if not quiet:
        _write_summary(outcome, console)


def write_statistics(outcome: Outcome, console: Console) -> None:
    """Findings and lost tokens by rule, the price of what is legitimate, and what became of the rest."""
    report = outcome.report
    totals = by_code(outcome)
    if totals:
        table = _table("code", "name", "findings", "tokens lost", "of the prompts")
        for each in totals:
            part = f"{share(each.tokens_lost, report.prompt_tokens):.1%}" if each.tokens_lost else ""
            lost = f"{_SHORT[each.kind]}{each.tokens_lost:,}" if each.kind else ""
            table.add_row(each.code, each.name, f"{each.findings:,}", lost, part)
        _print_table(console, table)
    sessions = f"{count(report.sessions, 'session')}, " if report.sessions else ""
    shown = f"{count(report.count, 'request')}, {sessions}{count(report.prompt_tokens, 'prompt token')}, "
    _print(console, Text(f"{shown}{report.cached_tokens:,} of them served by a warm cache as the prompts are"))
    for code, tokens in sorted(report.legitimate.items()):
        _print(console, Text(f"{count(tokens, 'token')} paid for legitimate changes of the history ({code})"))
    if outcome.suppressed or outcome.known:
        _print(console, Text(f"{outcome.suppressed:,} suppressed, {outcome.known:,} known from the baseline"))
    for words in outcome.gone:
        _print(console, Text(f"gone from the baseline: {visible(words)}"))


def write_page_sizes(outcome: Outcome, console: Console) -> None:
    """What would be reused at each page size."""
    total = outcome.report.prompt_tokens
    table = _table("page size", "cached", "of the prompts", "whole pages only", "of the prompts ")
    for each in outcome.report.shares:
        table.add_row(
            f"{each.page_size:,}",
            f"{each.cached_tokens:,}",
            f"{share(each.cached_tokens, total):.1%}",
            f"{each.whole_page_tokens:,}",
            f"{share(each.whole_page_tokens, total):.1%}",
        )
    _print_table(console, table)
    if any(each.forgotten_pages for each in outcome.report.shares):
        _print(console, Text("more tokens than the linter remembers: a cache that keeps everything would serve more"))


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        left = heading in {"code", "name"}
        table.add_column(heading, justify="left" if left else "right", no_wrap=True, overflow="ignore")
    return table


def _print_table(console: Console, table: Table) -> None:
    """As wide as it is, without the blanks that fill up its last column."""
    for line in console.render_lines(table, console.options.update(max_width=_WIDEST_TABLE), pad=False):
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        text.rstrip()
        _print(console, text)


def _write_finding(finding: Finding, console: Console) -> None:
    style = _STYLES[finding.severity]
    remark = "".join(
        f" ({word})"
        for word in (finding.confidence, finding.verdict)
        if word in {"suspected", "legitimate", "unavoidable"}
    )
    head = Text.assemble((f"{finding.severity} {finding.code}", style), (f" {finding.name}{remark}", "bold"))
    _print(console, head.append(f": {visible(finding.message)}"))
    place = Text("  --> ", "blue").append(reference_of(finding), "bold")
    if inside := place_of(finding):
        place.append(f"  {inside}")
    _print(console, place)
    for line in comparison(finding, console.width if console.is_terminal else WIDEST):
        _print(console, Text("   | ", "blue").append_text(line))
    if finding.tokens_lost is not None:
        sessions = finding.shared_by or 0
        spread = f", in {sessions:,} sessions" if sessions > 1 else ""
        verb = "price" if finding.verdict == "legitimate" else "lost"
        said = loss_words(finding).rsplit(" ", 1)[0] + spread
        _print(console, Text("   = ", "blue").append(f"{verb}: ", "bold").append(said))
    if finding.help:
        _print(console, Text("   = ", "blue").append("help: ", "bold").append(visible(finding.help)))
    console.print()


def _label(reference: str) -> str:
    """A place before a line of text: without its folders where they would take the room."""
    shown = visible(reference)
    return shown if cell_len(shown) <= _LONGEST_LABEL else shown.rpartition("/")[2]


def comparison(finding: Finding, width: int) -> list[Text]:
    """What both requests say, one under the other, and a line that marks what differs."""
    here = _label(finding.location.reference)
    if finding.after is None:
        return []
    after = visible(finding.after)
    if finding.before is None:
        start, end = _window(after, 0, width - cell_len(here) - 8)
        return [Text(f"{here}  ", "dim").append(_cut(after, start, end), "default")]
    before = visible(finding.before)
    if finding.compared_to is not None:
        earlier = _label(finding.compared_to)
    else:
        earlier, here = "before", "now"
    label = max(cell_len(here), cell_len(earlier)) + 2
    same = common_length(before, after)
    shorter = min(len(before), len(after)) - same
    behind = common_length(before[: -shorter - 1 : -1], after[: -shorter - 1 : -1]) if shorter else 0
    first, _ = _window(after, same, width - label - 8)
    lines = []
    for name, text, style in ((earlier, before, "red"), (here, after, "green")):
        _, last = _window(text, same, width - label - 8)
        differs = max(same, len(text) - behind)
        line = Text(name + " " * (label - cell_len(name)), "dim").append("…" if first else "", "dim")
        line.append(text[first:same], "default").append(text[same : min(differs, last)], f"bold {style}")
        line.append(text[differs:last], "default").append("…" if last < len(text) else "", "dim")
        lines.append(line)
    offset = label + cell_len(after[first:same]) + (1 if first else 0)
    longest = max(cell_len(text[same : len(text) - behind]) for text in (before, after))
    lines.append(Text(" " * offset + "^" * max(1, min(longest, width - offset - 5)), "bold"))
    return lines


def _window(text: str, focus: int, width: int) -> tuple[int, int]:
    """Characters ``[start, end)`` of ``text`` that fit into ``width`` cells and have ``focus`` in them."""
    width = max(width, 20)
    if cell_len(text) <= width:
        return 0, len(text)
    start = focus
    while start > 0 and cell_len(text[start - 1 : focus]) <= width // 3:
        start -= 1
    end = start
    cells = 0
    while end < len(text) and (cells := cells + cell_len(text[end])) <= width:
        end += 1
    return start, end


def _cut(text: str, start: int, end: int) -> str:
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _write_summary(outcome: Outcome, console: Console) -> None:
    report = outcome.report
    if not outcome.files and not report.count:
        _print(console, Text("Nothing was linted."))
        return
    texts = [file for file in outcome.files if kind_of(file) is not Kind.RECORDS]
    sessions = f" of {count(report.sessions, 'session')}" if report.sessions else ""  # a server knows those with names
    parts = [f"{count(report.count, 'request')}{sessions}"] if report.count or not texts else []
    parts += [count(len(texts), "source file")] if texts else []
    where = " and ".join(parts)
    left = [f"{outcome.suppressed:,} suppressed"] if outcome.suppressed else []
    left += [f"{outcome.known:,} known from the baseline"] if outcome.known else []
    left += [f"{len(outcome.gone):,} gone from it"] if outcome.gone else []
    beside = f" ({', '.join(left)})" if left else ""
    if not outcome.findings:
        _print(console, Text(f"No findings in {where}{beside}.", "green"))
        return
    line = Text(f"{count(len(outcome.findings), 'finding')} in {where}{beside}", "bold")
    if outcome.lost:
        line.append(f": {outcome.lost:,} of {report.prompt_tokens:,} prompt tokens are computed again for no reason")
    _print(console, line.append("."))


def _print(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=True)
