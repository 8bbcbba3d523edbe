"""What makes a finding the same one tomorrow: not its line, nor what the clock said that day.

::

    before   It is 2026-11-29 10:30:05. You are        in common, up to a word's end and
    after    It is 2026-11-29 10:31:47. You are        without words that have digits
             [It is]                   [You are]  ───► "It is … You are"
"""

from __future__ import annotations

import re
from pathlib import Path

from xxhash import xxh3_64_hexdigest

from agentcache.chat.text import common_length
from agentcache.lint.finding import Finding
from agentcache.lint.globs import relative

_INDEX = re.compile(r"\[[1-9]\d*\]")
_ID = re.compile(r"\b(?=\w*\d)[0-9a-f]{6,}\b|\d+", re.IGNORECASE)


def fingerprint(finding: Finding, root: Path, line: str | None) -> str:
    """16 hexadecimal digits.

    Args:
        root: files are named as seen from there.
        line: the text of the line, for findings in sources and templates.
    """
    parts = (finding.code, name_of(finding.location.file, root), path_of(finding) or "", _text(finding, line))
    return xxh3_64_hexdigest("\0".join(parts).encode("utf-8", "surrogatepass"))


def name_of(file: str, root: Path) -> str:
    """A file's name as seen from ``root``."""
    return file if file == "-" else relative(file, root.resolve()).as_posix()


def path_of(finding: Finding) -> str | None:
    """The finding's path; places behind the first of a list are all the same, since histories grow."""
    path = finding.location.path
    return None if path is None else _INDEX.sub("[*]", path)


def _text(finding: Finding, line: str | None) -> str:
    if line is not None:
        return " ".join(line.split())
    before, after = finding.before, finding.after
    if before is None or after is None:
        return _plain(after or before or "")
    start = common_length(before, after)
    shorter = min(len(before), len(after)) - start
    behind = common_length(before[: -shorter - 1 : -1], after[: -shorter - 1 : -1]) if shorter else 0
    return f"{_head(after[:start])} … {_tail(after[len(after) - behind :])}"


def _head(text: str) -> str:
    """Whole words of ``text`` without those at its end that belong to what differs."""
    words = text.split() if text[-1:].isspace() else text.split()[:-1]
    while words and _has_digit(words[-1]):
        words.pop()
    return _plain(" ".join(words))


def _tail(text: str) -> str:
    words = text.split() if text[:1].isspace() else text.split()[1:]
    while words and _has_digit(words[0]):
        words.pop(0)
    return _plain(" ".join(words))


def _has_digit(word: str) -> bool:
    return any(char.isdigit() for char in word)


def _plain(text: str) -> str:
    return _ID.sub("0", " ".join(text.split()))
