"""``agentcache lint rule``: the manual."""

from __future__ import annotations

import argparse
import sys

from agentcache.errors import SettingsError
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
    parser = argparse.ArgumentParser(
        prog="agentcache lint rule", description="Explain a rule, or list all of them.", allow_abbrev=False
    )
    parser.add_argument("code", nargs="?", metavar="CODE", help="such as AC501")
    parser.add_argument("--output-format", choices=("text", "json", "markdown"), default="text", help="(%(default)s)")
    options = parser.parse_args(argv)
    rules = RULES
    if options.code is not None:
        found = find_rule(options.code)
        if found is None:
            known = ", ".join(rule.code for rule in RULES)
            raise SettingsError(f"got {options.code!r}, expected one of {known}{nearest(options.code)}")
        rules = (found,)
    if options.output_format == "json":
        rule_pages.write_json(rules, sys.stdout)
    elif options.output_format == "markdown":
        page = rule_pages.markdown_page(rules) if options.code is None else rule_pages.markdown_of(rules[0]) + "\n"
        sys.stdout.write(page)
    elif options.code is None:
        rule_pages.write_list(rules, console_of(sys.stdout, None))
    else:
        rule_pages.write_rule(rules[0], console_of(sys.stdout, None))
    sys.stdout.flush()
    return 0
