"""What all formats for people say alike."""

from __future__ import annotations

import unicodedata

from agentcache.lint.finding import Finding
from agentcache.lint.source_text import is_text

_SIGNS = {"\n": "⏎", "\t": "⇥", "\r": "␍"}
_BOUNDS = {"exact": "", "upper_bound": "up to ", "estimate": "about ", None: ""}


def visible(text: str) -> str:
    """``text`` with line ends and control characters as signs: prompts may hold what would command the terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _SIGNS.get(char) or (char if unicodedata.category(char)[0] != "C" else f"\\u{ord(char):04x}") for char in text
    )


def count(number: int, word: str) -> str:
    """``1 request``, ``2,000 requests``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def loss_words(finding: Finding) -> str:
    """``1,163 tokens lost``, ``up to 40 tokens lost``; what is legitimate is a price, not a loss."""
    bound = _BOUNDS[finding.tokens_lost_kind]
    verb = "paid" if finding.verdict == "legitimate" else "lost"
    return f"{bound}{count(finding.tokens_lost or 0, 'token')} {verb}"


def reference_of(finding: Finding) -> str:
    """``chat.jsonl:3``, ``agent.py:12:8``: where an editor opens it, columns from 1."""
    where = finding.location
    column = f":{where.char + 1}" if where.char is not None and where.record is not None and is_text(where.file) else ""
    return visible(where.reference + column)


def place_of(finding: Finding) -> str:
    """Where inside the record or text: ``messages[0].content, character 21 (token 21, page 1)``, ``in ask``."""
    where = finding.location
    text = is_text(where.file)
    parts = [] if where.path is None else [f"in {where.path}" if text else where.path]
    if where.char is not None and not text:
        parts.append(f"character {where.char}")
    shown = ", ".join(parts)
    if where.token is not None:
        page = "" if where.page is None else f", page {where.page}"
        shown += f"{' ' if shown else ''}(token {where.token}{page})"
    return visible(shown)


def one_line(finding: Finding) -> str:
    """Place, message and loss on one line."""
    place = place_of(finding)
    suspected = "suspected: " if finding.confidence == "suspected" else ""
    loss = "" if finding.tokens_lost is None else f" [{loss_words(finding)}]"
    return visible(f"{place + ': ' if place else ''}{suspected}{finding.message}{loss}")
