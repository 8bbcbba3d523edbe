"""Reports for programs: JSON, JSON lines and GitHub's workflow commands."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import Any, TextIO

from agentcache.lint.finding import Finding
from agentcache.lint.linter import Report


def write_json(report: Report, out: TextIO, *, statistics: bool) -> None:
    """A list of findings; with ``statistics`` an object of ``findings`` and ``statistics``."""
    findings = [finding.model_dump(mode="json") for finding in report.findings]
    value: Any = {"findings": findings, "statistics": statistics_of(report)} if statistics else findings
    json.dump(value, out, ensure_ascii=False, indent=2)
    out.write("\n")


def write_jsonl(report: Report, out: TextIO, *, statistics: bool) -> None:
    """One finding a line; with ``statistics`` one more line that holds ``{"statistics": …}``."""
    for finding in report.findings:
        out.write(json.dumps(finding.model_dump(mode="json"), ensure_ascii=False) + "\n")
    if statistics:
        out.write(json.dumps({"statistics": statistics_of(report)}, ensure_ascii=False) + "\n")


def write_github(report: Report, out: TextIO) -> None:
    """Workflow commands that GitHub shows beside the file.

    Follows https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    levels = {"error": "error", "warning": "warning", "info": "notice"}
    for finding in report.findings:
        where = finding.location
        properties = {
            "file": where.file,
            "line": where.record or 1,
            "title": f"agentcache {finding.code} {finding.name}",
        }
        shown = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
        out.write(f"::{levels[finding.severity]} {shown}::{_data(one_line(finding))}\n")


def one_line(finding: Finding) -> str:
    """Message, place and loss on one line."""
    where = finding.location
    place = "" if where.path is None else f"{where.path}, character {where.char} (token {where.token}): "
    return f"{place}{finding.message}{_loss(finding)}"


def _loss(finding: Finding) -> str:
    return "" if finding.tokens_lost is None else f" [{loss_words(finding)}]"


def loss_words(finding: Finding) -> str:
    """``1,163 tokens lost``, ``up to 40 tokens lost``."""
    bound = {"exact": "", "upper_bound": "up to ", "estimate": "about ", None: ""}[finding.tokens_lost_kind]
    count = finding.tokens_lost or 0
    return f"{bound}{count:,} token{'' if count == 1 else 's'} lost"


def statistics_of(report: Report) -> dict[str, Any]:
    """Totals, counts by rule, and what each request would find in a warm cache."""
    counts = Counter(finding.code for finding in report.findings)
    return {
        "requests": report.count,
        "sessions": report.sessions,
        "unreadable": report.unreadable,
        "prompt_tokens": report.prompt_tokens,
        "predicted_cached_tokens": report.cached_tokens,
        "tokens_lost": exact_loss(report),
        "by_code": dict(sorted(counts.items())),
        "predictions": [asdict(request) for request in report.requests],
    }


def exact_loss(report: Report) -> int:
    """Tokens measured as lost; bounds and estimates are left out, so that nothing is counted twice."""
    return sum(f.tokens_lost or 0 for f in report.findings if f.tokens_lost_kind == "exact")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
