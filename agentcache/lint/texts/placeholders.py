"""Names in a prompt file that a program puts values in place of, by what they will be filled in with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Filling = Literal["time", "id", "environment", "retrieved", "personal"]

_PLACEHOLDER = re.compile(
    r"""(?<![{$\\]) (?: \{\{-?\s* (?P<double> [A-Za-z_][\w.\[\]"' ()|:%-]{0,60}? ) \s*-?\}\}
        | \$?\{ (?P<single> [A-Za-z_][\w.]{0,40} ) (?:[!:][^{}\n]{0,20})? \}
        | <% =? \s* (?P<percent> [A-Za-z_][\w.()]{0,40} ) \s* %>
        | % \( (?P<old> [A-Za-z_]\w{0,40} ) \) s
        | \[\[ \s* (?P<square> [A-Za-z_][\w ]{0,40} ) \s* \]\] )""",
    re.VERBOSE,
)


def _names(words: str) -> re.Pattern[str]:
    """One of ``words`` as a whole name, or as a part of one that dots or underscores set off."""
    return re.compile(rf"(?:^|[_. ])(?:{words})(?:$|[_. (|:])", re.IGNORECASE)


_NAMES: dict[Filling, re.Pattern[str]] = {
    "time": _names(r"now|today|time|date|datetime|timestamp|clock|strftime\w*|currentdate|currenttime|weekday"),
    "id": _names(
        r"uuid\d?|(?:session|run|request|trace|conversation|thread|job|chat|message|correlation)_?(?:id|key)|nonce|random\w*"
        r"|te?mp_?(?:dir|path)|scratch\w*"
    ),
    "environment": _names(
        r"cwd|pwd|work(?:ing)?_?dir(?:ectory)?|platform|os(?:_(?:name|version))?|hostname|shell|git_\w+|branch|workspace\w*"
        r"|repo_(?:path|root)|environment(?:_\w+)?|env_info|system_info|open_files?|file_tree|directory_\w+"
    ),
    "retrieved": _names(
        r"context|documents?|docs|sources?|passages?|chunks?|snippets?|search_results?|retrieved\w*|knowledge\w*|references?"
        r"|memories"
    ),
    "personal": _names(
        r"user(?:_?(?:name|id|profile|info|data|query|input|message|request|email))?|customer\w*|account\w*|task|goal|objective"
        r"|question|query|topic|issue|ticket|first_name|full_name|username|email|profile|preferences|company_name"
    ),
}


class Placeholder(NamedTuple):
    """Characters ``[start, end)`` of a text."""

    start: int
    end: int


def find_placeholders(text: str, filling: Filling) -> Iterator[Placeholder]:
    """Names that will be filled in with something of that kind; a name counts as the first kind that it fits."""
    for match in _PLACEHOLDER.finditer(text):
        name = next(filter(None, match.groups()), "").strip()
        if next((kind for kind, pattern in _NAMES.items() if pattern.search(name)), None) == filling:
            yield Placeholder(match.start(), match.end())
