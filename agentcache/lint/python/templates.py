"""Where the four kinds of templates that Python programs fill in have their slots."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias


class Field(NamedTuple):
    """A slot.

    Attributes:
        key: number or name of the argument; for ``user.name`` and ``rows[0]`` what stands before the dot or bracket.
        pattern: how the value is written, as after the colon of ``{now:%Y}``.
    """

    key: int | str
    pattern: str = ""


Parts: TypeAlias = "list[str | Field]"

_PERCENT = re.compile(r"%(?:\((\w+)\))?[-#0 +]*(?:\d+|\*)?(?:\.\d+)?([diouxXeEfFgGcrsa%])")
_DOLLAR = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)\})")
_BRACES = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)[^{}]*\}\}")


def percent_parts(text: str) -> Parts:
    """Of ``"… %s …" % values``."""
    count = 0
    parts: Parts = []
    for before, match in _between(_PERCENT, text):
        parts.append(before)
        if match is None:
            continue
        if match[2] == "%":
            parts.append("%")
        elif match[1]:
            parts.append(Field(match[1]))
        else:
            parts.append(Field(count))
            count += 1
    return parts


def format_parts(text: str) -> Parts | None:
    """Of ``"… {} {name} …".format(…)``; ``None`` for a text that cannot be filled in so."""
    count = 0
    parts: Parts = []
    try:
        for before, name, pattern, _ in string.Formatter().parse(text):
            parts.append(before)
            if name is None:
                continue
            key = re.split(r"[.\[]", name, maxsplit=1)[0]
            if key == "":
                parts.append(Field(count, pattern or ""))
                count += 1
            else:
                parts.append(Field(int(key) if key.isdigit() else key, pattern or ""))
    except ValueError:
        return None
    return parts


def dollar_parts(text: str) -> Parts:
    """Of ``string.Template("… $name …").substitute(…)``."""
    parts: Parts = []
    for before, match in _between(_DOLLAR, text):
        parts.append(before)
        if match is not None:
            parts.append("$" if match[1] else Field(match[2] or match[3]))
    return parts


def brace_parts(text: str) -> Parts:
    """Of ``Template("… {{ name }} …").render(…)``."""
    parts: Parts = []
    for before, match in _between(_BRACES, text):
        parts.append(before)
        if match is not None:
            parts.append(Field(match[1]))
    return parts


def _between(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    end = 0
    for match in pattern.finditer(text):
        yield text[end : match.start()], match
        end = match.end()
    yield text[end:], None
