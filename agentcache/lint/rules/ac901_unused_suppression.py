"""AC901: a suppression that suppresses nothing; found after the other rules, when all is known."""

from __future__ import annotations

from agentcache.lint.finding import Finding, Fix, Location
from agentcache.lint.rules.base import Rule


def report(where: Location, codes: str, written: str, fix: Fix, help: str) -> Finding:
    """The finding for ``written``, in which nothing is found of ``codes``."""
    return Finding(
        code=RULE.code,
        name=RULE.name,
        severity="warning",
        location=where,
        after=written,
        message=f"nothing of {codes} is found here, and it is suppressed",
        help=help,
        fix=fix,
    )


RULE = Rule(
    code="AC901",
    name="unused-suppression",
    what="A suppression names a rule that ran and found nothing there.",
    why=(
        "The defect was mended, or moved. A suppression that stays behind hides the next one at that place, and tells readers "
        "of something that is not so. Only rules that ran are judged: with --select AC5 nothing is said of a suppressed AC101."
    ),
    bad="SYSTEM = 'You are a careful engineer.'  # agentcache: ignore[AC101] the date is wanted",
    good="SYSTEM = 'You are a careful engineer.'",
    fix_safety=(
        "Safe for a comment of a source, and for one that has its line of a template to itself: the comment is removed. "
        "Entries of records and of the configuration are shown."
    ),
    precedence=99,
)
