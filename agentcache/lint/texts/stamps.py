"""Times that say when something was sent."""

from __future__ import annotations

import re

from agentcache.lint.times import Granularity, TimeText

_NOW = re.compile(
    r"""(?: \b (?: now | today(?:'s)? | current(?:ly)? | timestamp | as\ of | it\ is | it's
             | (?:local|system|server|session|utc|request|present) [ _] (?:date|time) ) \b
          | ^ \W* (?: date | time | datetime ) \b )
        (?: \W | \b(?:date|time|day|is|and|the|local|utc|at|s)\b ){0,12} $""",
    re.IGNORECASE | re.VERBOSE,
)
"""What stands before a time that says when the request was made."""
_TALKED_ABOUT = re.compile(
    r"\b(?:e\.g\.|i\.e\.|examples?|such as|format(?:ted)?|like|iso ?8601|cut-?off|since|until|before|after|between|from"
    r"|versions?|releas\w+|published|effective|updated|created|deadline|due)\b",
    re.IGNORECASE,
)
"""What stands before a time that is only talked about."""


def reads_as_now(text: str, time: TimeText, *, bare: bool = True) -> bool:
    """Whether ``time`` says when something was sent, rather than being talked about.

    Args:
        bare: a full stamp counts that nothing introduces, when it stands alone or before everything else.
    """
    line_start = text.rfind("\n", 0, time.start) + 1
    line = re.split(r"(?<!\.[a-z])[.!?]\s", text[line_start : time.start][-60:])[-1]
    if _TALKED_ABOUT.search(line):
        return False
    if _NOW.search(line):
        return True
    if not bare or not time.complete or time.granularity < Granularity.MINUTE or line.strip(" \t[(<#*-"):
        return False
    # A stamp that stands alone, or before everything else; a line that begins with one is a line of a log.
    line_end = text.find("\n", time.end)
    alone = not text[time.end : line_end if line_end >= 0 else len(text)].strip(" \t])>.*#-")
    return alone or not text[:line_start].strip()
