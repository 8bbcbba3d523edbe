"""The rules, each in a file of its own.  A new rule is a new file and a line here."""

from __future__ import annotations

from collections.abc import Sequence

from agentcache.lint.rules import ac101_time, ac501_share_point, ac502_below_page, ac903_unreadable
from agentcache.lint.rules.base import Rule

RULES: tuple[Rule, ...] = (
    ac101_time.RULE,
    ac501_share_point.RULE,
    ac502_below_page.RULE,
    ac903_unreadable.RULE,
)


def find_rule(code: str) -> Rule | None:
    """The rule of that code, whatever its case."""
    return next((rule for rule in RULES if rule.code == code.upper()), None)


def select_rules(select: Sequence[str], ignore: Sequence[str]) -> tuple[Rule, ...]:
    """The rules whose code starts with one of ``select`` (all of them when it is empty) and with none of ``ignore``.

    Where both name a rule, the longer prefix wins, so that ``--ignore AC5 --select AC501`` keeps AC501.

    Raises:
        ValueError: a prefix that no rule has.
    """
    for prefix in (*select, *ignore):
        if not any(rule.code.startswith(prefix.upper()) for rule in RULES):
            known = ", ".join(rule.code for rule in RULES)
            raise ValueError(f"got {prefix!r}, expected the beginning of a rule's code; this version has {known}")
    # What cannot be read is said whatever was selected, unless it is ignored by name.
    chosen = {rule: (*select, "AC") if not select or rule is ac903_unreadable.RULE else select for rule in RULES}
    return tuple(rule for rule, prefixes in chosen.items() if _reach(rule, prefixes) > _reach(rule, ignore))


def _reach(rule: Rule, prefixes: Sequence[str]) -> int:
    return max((len(prefix) for prefix in prefixes if rule.code.startswith(prefix.upper())), default=0)
