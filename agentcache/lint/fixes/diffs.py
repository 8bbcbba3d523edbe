"""Unified diffs, as ``patch`` and ``git apply`` take them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

_CONTEXT = 3


def text_diff(name: str, before: bytes, after: bytes) -> str:
    """Of a file that may change anywhere."""
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}", n=_CONTEXT)
    return "".join(map(_closed, lines))


def records_diff(name: str, before: Path, after: Path, changed: Sequence[int]) -> str:
    """Of a file in which the lines ``changed`` (from 1, in order) were replaced by one line each; never held as a whole."""
    pieces = [f"--- a/{name}\n+++ b/{name}\n"]
    hunks = list(_hunks(changed))
    with before.open("rb") as old, after.open("rb") as new:
        window: list[tuple[str, str]] = []
        number = 0
        for first, last in hunks:
            while number < last and (line := old.readline()):
                number += 1
                mended = new.readline()
                if number >= first:
                    window.append((_text(line), _text(mended)))
            pieces += [f"@@ -{first},{len(window)} +{first},{len(window)} @@\n", *_hunk(window)]
            window = []
    return "".join(pieces)


def _hunks(changed: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last line of each hunk, what stands around the changes included."""
    first = last = 0
    for number in changed:
        if last and number - _CONTEXT > last + 1:
            yield first, last
            first = 0
        first = first or max(1, number - _CONTEXT)
        last = number + _CONTEXT
    if last:
        yield first, last


def _hunk(window: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Runs of changed lines: first as they were, then as they are."""
    removed: list[str] = []
    added: list[str] = []
    for old, new in window:
        if old == new:
            yield from (*removed, *added)
            removed, added = [], []
            yield _closed(f" {old}")
        else:
            removed.append(_closed(f"-{old}"))
            added.append(_closed(f"+{new}"))
    yield from (*removed, *added)


def _lines(content: bytes) -> list[str]:
    """Cut at line feeds only, as diff does."""
    pieces = _text(content).split("\n")
    return [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _closed(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
