"""The manual: rules on a terminal, as JSON, and as the page of the documentation."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from agentcache.lint.rules.base import Rule

GROUPS = {
    "1": "What changes from request to request",
    "2": "How things are written",
    "3": "Tools and formats of replies",
    "4": "History",
    "5": "Pages",
    "6": "Keys of the cache",
    "7": "Chat templates",
    "8": "A running server",
    "9": "The linter itself",
}
"""By the first digit of the code."""
OPTIONAL = "off unless it is selected by name or beginning"


def write_list(rules: Sequence[Rule], console: Console) -> None:
    """A line a rule."""
    width = max(len(rule.name) for rule in rules)
    for rule in rules:
        mark = " (optional)" if rule.optional else ""
        line = Text.assemble(
            (rule.code, "bold"), f"  {rule.name:<{width}}  {' '.join(rule.what.split())}", (mark, "dim")
        )
        console.print(line, soft_wrap=True)


def write_rule(rule: Rule, console: Console) -> None:
    """A rule's page of the manual."""
    head = Text.assemble((rule.code, "bold"), " ", rule.name)
    console.print(head.append(f"  ({OPTIONAL})", "dim") if rule.optional else head, soft_wrap=True)
    for heading, body in (
        ("What it reports", rule.what),
        ("Why it matters", rule.why),
        ("Bad", rule.bad),
        ("Good", rule.good),
        ("Fix", rule.fix_safety),
    ):
        console.print(Text(f"\n{heading}", "bold"))
        style = {"Bad": "red", "Good": "green"}.get(heading, "")
        if style:  # examples are copied: they are not wrapped
            for line in body.splitlines():
                console.print(Text(f"  {line}", style), soft_wrap=True)
        else:
            console.print(Padding(Text(body), (0, 0, 0, 2), expand=False))


def write_json(rules: Sequence[Rule], out: TextIO) -> None:
    """All texts, for editors and pages."""
    fields = ("code", "name", "what", "why", "bad", "good", "fix_safety", "optional")
    json.dump([{name: getattr(rule, name) for name in fields} for rule in rules], out, indent=2)
    out.write("\n")


def markdown_page(rules: Sequence[Rule]) -> str:
    """The page of the documentation that has every rule."""
    parts = [
        "# Rules of the linter",
        "Made from the rules by `agentcache lint rule --output-format markdown`; [the linter](linter.md) says how they are "
        "used. `agentcache lint rule AC101` shows one of these on a terminal.",
        "| code | name | what it reports |\n|---|---|---|\n" + "\n".join(_row(rule) for rule in rules),
    ]
    for digit in sorted({rule.code[2] for rule in rules}):
        parts.append(f"## AC{digit}: {GROUPS.get(digit, 'More')}")
        parts += [f"### {rule.code} {rule.name}\n\n{markdown_of(rule)}" for rule in rules if rule.code[2] == digit]
    return "\n\n".join(parts) + "\n"


def markdown_of(rule: Rule) -> str:
    """One rule, without a heading."""
    optional = f"\n\nThis rule is {OPTIONAL}." if rule.optional else ""
    return (
        f"{rule.what}\n\n**Why.** {rule.why}{optional}\n\nBad:\n\n{_fenced(rule.bad)}\n\nGood:\n\n{_fenced(rule.good)}\n\n"
        f"**Fix.** {rule.fix_safety}"
    )


def _row(rule: Rule) -> str:
    what = " ".join(rule.what.split()).replace("|", "\\|")
    optional = " (optional)" if rule.optional else ""
    anchor = f"{rule.code} {rule.name}".lower().replace(" ", "-")
    return f"| [{rule.code}](#{anchor}) | {rule.name}{optional} | {what} |"


def _fenced(example: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", example)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{example.rstrip()}\n{fence}"
