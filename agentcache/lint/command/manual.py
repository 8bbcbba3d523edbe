"""``agentcache lint rule``: the manual."""

from __future__ import annotations

import sys

from agentcache.errors import SettingsError
from agentcache.lint.command.flags import FlagParser
from agentcache.lint.command.writing import console_of
from agentcache.lint.outputs import rule_pages
from agentcache.lint.rules import RULES, find_rule
from agentcache.lint.suppressions import nearest


def rule_command(argv: list[str]) -> int:
    """
    Args:
        argv: the command line behind ``agentcache lint rule``.

    Raises:
        SettingsError: there is no such rule.
    """
    parser = FlagParser(
        prog="agentcache lint rule", description="Explain a rule, or list all of them or a group.", allow_abbrev=False
    )
    parser.add_argument(
        "code", nargs="?", metavar="CODE", help="such as AC501; the beginning of codes, such as AC5, lists that group"
    )
    parser.add_argument("--output-format", choices=("text", "json", "markdown"), default="text", help="(%(default)s)")
    options = parser.parse_args(argv)
    rules = RULES
    alone = options.code is not None and find_rule(options.code) is not None
    if options.code is not None:
        rules = tuple(rule for rule in RULES if options.code and rule.code.startswith(options.code.upper()))
        if not rules:
            known = ", ".join(rule.code for rule in RULES)
            raise SettingsError(
                f"got {options.code!r}, expected a code or its beginning{nearest(options.code)} (this version has {known})"
            )
    if options.output_format == "json":
        rule_pages.write_json(rules, sys.stdout)
    elif options.output_format == "markdown":
        page = rule_pages.markdown_page(rules) if not alone else rule_pages.markdown_of(rules[0]) + "\n"
        sys.stdout.write(page)
    elif not alone:
        rule_pages.write_list(rules, console_of(sys.stdout, None))
    else:
        rule_pages.write_rule(rules[0], console_of(sys.stdout, None))
    sys.stdout.flush()
    return 0
