"""What is written: the findings that are left, and what became of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentcache.lint.finding import Finding, Severity
from agentcache.lint.fixes.outcome import FixReport
from agentcache.lint.outputs.sources import Sources
from agentcache.lint.report import Report

_WEIGHTS: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}


@dataclass(frozen=True)
class Outcome:
    """A run's outcome.

    Attributes:
        findings: that are reported.
        report: the figures of the run.
        files: what was linted, in order.
        sources: the texts of linted files.
        suppressed: findings that comments, records and the configuration leave as they are.
        known: findings that the baseline has.
        gone: findings of the baseline that are not found any more, in words.
        fixes: what was mended; ``None`` where nothing was asked for.
        failed: what could not be read, or written, and why.
        fail_on: findings that weigh less fail nothing.
    """

    findings: Sequence[Finding]
    report: Report
    files: Sequence[str]
    sources: Sources = field(default_factory=Sources)
    suppressed: int = 0
    known: int = 0
    gone: Sequence[str] = ()
    fixes: FixReport | None = None
    failed: Sequence[tuple[str, str]] = ()
    fail_on: Severity = "info"

    def fails(self, finding: Finding) -> bool:
        """Whether it makes the run one that found something; what is legitimate never does."""
        return finding.verdict != "legitimate" and _WEIGHTS[finding.severity] >= _WEIGHTS[self.fail_on]

    @property
    def lost(self) -> int:
        """Tokens measured as lost without need; bounds and estimates are left out, so that nothing is counted twice."""
        return sum(
            f.tokens_lost or 0 for f in self.findings if f.tokens_lost_kind == "exact" and f.verdict != "legitimate"
        )
