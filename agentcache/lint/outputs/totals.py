"""Totals of a run, for every format that has statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from agentcache.lint.outputs.outcome import Outcome


@dataclass(frozen=True, slots=True)
class CodeTotal:
    """Findings of one rule.

    Attributes:
        kind: how well the loss is known: of several kinds the vaguest.
    """

    code: str
    name: str
    findings: int
    tokens_lost: int
    kind: str | None


_VAGUENESS = (None, "exact", "upper_bound", "estimate")


def by_code(outcome: Outcome) -> list[CodeTotal]:
    """In the order of the codes."""
    totals: dict[str, CodeTotal] = {}
    for finding in outcome.findings:
        had = totals.get(finding.code, CodeTotal(finding.code, finding.name, 0, 0, None))
        kind = max(had.kind, finding.tokens_lost_kind, key=_VAGUENESS.index)
        lost = had.tokens_lost + (finding.tokens_lost or 0)
        totals[finding.code] = CodeTotal(finding.code, finding.name, had.findings + 1, lost, kind)
    return [totals[code] for code in sorted(totals)]


def share(part: int, whole: int) -> float:
    """0 where there is no whole."""
    return part / whole if whole else 0.0


def statistics_of(outcome: Outcome) -> dict[str, Any]:
    """Totals, counts by rule, and what each page size would reuse; without figures of single requests."""
    report = outcome.report
    return {
        "files": len(outcome.files),
        "requests": report.count,
        "sessions": report.sessions,
        "unreadable": report.unreadable,
        "prompt_tokens": report.prompt_tokens,
        "predicted_cached_tokens": report.cached_tokens,
        "tokens_lost": outcome.lost,
        "share_lost": round(share(outcome.lost, report.prompt_tokens), 6),
        "by_code": {total.code: total.findings for total in by_code(outcome)},
        "tokens_lost_by_code": {total.code: total.tokens_lost for total in by_code(outcome)},
        "legitimate": report.legitimate,
        "suppressed": outcome.suppressed,
        "known_from_baseline": outcome.known,
        "gone_from_baseline": list(outcome.gone),
        "page_sizes": [
            {**asdict(each), "cached_share": round(share(each.cached_tokens, report.prompt_tokens), 6)}
            for each in report.shares
        ],
    }


def predictions(outcome: Outcome) -> Iterator[dict[str, Any]]:
    """What each request would find in a warm cache, one at a time: there may be a hundred thousand."""
    return (asdict(request) for request in outcome.report.requests)
