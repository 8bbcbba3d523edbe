"""The rules, each in a file of its own: a new rule is a new file ``acNNN_words.py`` with one ``RULE``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache

from agentcache.lint.rules.base import Rule

_ALWAYS = "AC903"
"""What cannot be read is said whatever was selected, unless it is ignored by name."""


RULES: tuple[Rule, ...]
"""By code.  Found when they are first asked for: what rules stand on may be imported before them."""


@cache
def _discovered() -> tuple[Rule, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("ac"))
    return tuple(importlib.import_module(f"{__name__}.{name}").RULE for name in names)


def __getattr__(name: str) -> tuple[Rule, ...]:
    if name == "RULES":
        return _discovered()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find_rule(code: str) -> Rule | None:
    """The rule of that code, whatever its case."""
    return next((rule for rule in _discovered() if rule.code == code.upper()), None)


def select_rules(select: Sequence[str], ignore: Sequence[str], extend: Sequence[str] = ()) -> tuple[Rule, ...]:
    """The rules whose code starts with one of ``select`` and with none of ``ignore``.

    Where both name a rule, the longer prefix wins, so that ``--ignore AC5 --select AC501`` keeps AC501.

    Args:
        select: beginnings of codes; when it is empty, all rules that are not optional.
        extend: more of them, beside ``select`` or beside all.

    Raises:
        ValueError: a prefix that no rule has.
    """
    for prefix in (*select, *ignore, *extend):
        if not prefix or not any(rule.code.startswith(prefix.upper()) for rule in _discovered()):
            known = ", ".join(rule.code for rule in _discovered())
            raise ValueError(f"got {prefix!r}, expected the beginning of a rule's code; this version has {known}")
    chosen = {rule: _prefixes(rule, select, extend) for rule in _discovered()}
    return tuple(rule for rule, prefixes in chosen.items() if _reach(rule, prefixes) > _reach(rule, ignore))


def _prefixes(rule: Rule, select: Sequence[str], extend: Sequence[str]) -> Sequence[str]:
    by_default = rule.code == _ALWAYS or (not select and not rule.optional)
    return (*select, *extend, *(("AC",) if by_default else ()))


def _reach(rule: Rule, prefixes: Sequence[str]) -> int:
    return max((len(prefix) for prefix in prefixes if rule.code.startswith(prefix.upper())), default=0)
