"""AC902: a suppression or a configuration that cannot be followed; found while they are read."""

from __future__ import annotations

from agentcache.lint.finding import Finding, Location
from agentcache.lint.rules.base import Rule


def report(where: Location, written: str, message: str, help: str) -> Finding:
    """The finding for ``written``."""
    return Finding(
        code=RULE.code,
        name=RULE.name,
        severity="warning",
        location=where,
        after=written,
        message=message,
        help=help,
    )


RULE = Rule(
    code="AC902",
    name="unknown-code",
    what=(
        "A suppression names a code that no rule has, or no code at all, or gives no reason; or the configuration names a code "
        "that no rule has."
    ),
    why=(
        "It has no effect, and whoever wrote it thinks that it has: a finding that was meant to be known is reported, or a rule "
        "that was meant to be on is off. A suppression without codes would hide what nobody has seen yet, and one without a "
        "reason cannot be judged by the next reader, so neither counts. On the command line an unknown code is an error."
    ),
    bad="now = datetime.now()  # agentcache: ignore[AC110]",
    good="now = datetime.now()  # agentcache: ignore[AC101] printed in the log, never sent",
    fix_safety="Shown: which code was meant, and why, is known to whoever wrote it.",
    precedence=99,
)
