"""What is reported of what was found, and what that means for the exit code."""

from __future__ import annotations

from collections.abc import Sequence

from agentcache.lint.command.choices import Choices
from agentcache.lint.finding import Finding
from agentcache.lint.globs import matcher
from agentcache.lint.outputs.outcome import Outcome
from agentcache.lint.suppressions import unknown_in_config

CLEAN, FOUND, ERROR = 0, 1, 2
_UNREADABLE = "AC903"
_LIVE = "AC8"
"""Rules that only a running server can judge."""


def ran(choices: Choices) -> set[str]:
    """Codes of the rules that look at files."""
    return {code for code in choices.codes if not code.startswith(_LIVE)}


def worth_reporting(choices: Choices, findings: Sequence[Finding]) -> list[Finding]:
    """What per-file ignores and the least loss leave; what the configuration names wrongly comes with it."""
    config = choices.config
    unknown = [unknown_in_config(config, each.code, each.key) for each in choices.unknown] if config is not None else []
    ignores = [(matcher([pattern], choices.root), codes) for pattern, codes in choices.per_file_ignores]
    return [
        finding
        for finding in (*findings, *(unknown if "AC902" in choices.codes else ()))
        if not any(finding.code.startswith(codes) and matches(finding.location.file) for matches, codes in ignores)
        and (finding.tokens_lost is None or finding.tokens_lost >= choices.min_tokens_lost)
    ]


def unreadable(findings: Sequence[Finding]) -> bool:
    """Whether something could not be read, which is an error and no finding."""
    return any(finding.code == _UNREADABLE for finding in findings)


def exit_code(choices: Choices, outcome: Outcome, *, failed: bool) -> int:
    """What is legitimate, or weighs less than ``--fail-on`` says, is told and fails nothing.

    Args:
        failed: a file could not be read or written.
    """
    options = choices.options
    if failed or unreadable(outcome.findings):
        return ERROR
    if options.exit_zero:
        return CLEAN
    if options.diff and outcome.fixes is not None:
        return FOUND if outcome.fixes.changed else CLEAN
    return FOUND if any(outcome.fails(finding) for finding in outcome.findings) else CLEAN
