"""Patterns of file names as in ``.gitignore``: ``*`` stays in a folder, ``**`` does not, a bare name is found anywhere."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path, PurePath

_PIECES = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)


def matcher(patterns: Iterable[str], root: Path) -> Callable[[str | Path], bool]:
    """Whether a file, or a folder above it, is meant by one of ``patterns``.

    Args:
        root: the folder that patterns with a slash are relative to.
    """
    compiled = [_compiled(pattern) for pattern in patterns]
    base = root.resolve()

    def matches(file: str | Path) -> bool:
        path = relative(file, base)
        above = [path, *(parent for parent in path.parents if parent.name)]
        return any(pattern.fullmatch(each.as_posix()) for pattern in compiled for each in above)

    return matches


def relative(file: str | Path, root: Path) -> PurePath:
    """``file`` as seen from ``root``, and as it is where it lies outside."""
    path = Path(os.path.abspath(file))  # without ".."
    for candidate in (path, path.resolve()):
        if candidate.is_relative_to(root):
            return candidate.relative_to(root)
    return path


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    text = pattern.removeprefix("./").rstrip("/")
    anchored = "/" in text
    text = text.removeprefix("/") if not pattern.startswith("//") else text
    body = "".join(_translated(piece) for piece in _PIECES.findall(text))
    if PurePath(pattern).is_absolute():  # of a file outside the root, or anchored as in .gitignore
        body = f"/?{body}"
    elif not anchored:
        body = f"(?:.*/)?{body}"
    try:
        return re.compile(body, re.DOTALL)
    except re.error:  # a range that runs backwards
        return re.compile(re.escape(text))


def _translated(piece: str) -> str:
    if piece == "**/":
        return "(?:.*/)?"
    if piece == "**":
        return ".*"
    if piece == "*":
        return "[^/]*"
    if piece == "?":
        return "[^/]"
    if len(piece) > 2 and piece[0] == "[":
        characters = piece[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        return f"[^/{characters[1:]}]" if characters[0] == "!" else f"[{characters}]"
    return re.escape(piece)
