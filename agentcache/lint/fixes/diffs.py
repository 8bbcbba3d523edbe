"""Unified diffs of sources and templates, as ``patch`` and ``git apply`` take them."""

from __future__ import annotations

import difflib

_CONTEXT = 3


def text_diff(name: str, before: bytes, after: bytes) -> str:
    """Of a file that may change anywhere."""
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}", n=_CONTEXT)
    return "".join(map(_closed, lines))


def _lines(content: bytes) -> list[str]:
    """Cut at line feeds only, as diff does."""
    pieces = _text(content).split("\n")
    return [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _closed(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
