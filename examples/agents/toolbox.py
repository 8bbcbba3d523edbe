"""The three tools of the example agent: list, read and search the text files below one folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "build", "dist"}
_LARGEST_FILE = 400_000
_MOST_LINES = 60
_MOST_HITS = 8
_LONGEST_LINE = 160


class ToolError(Exception):
    """A call that a tool refuses; the sentence goes to the model as the tool's result."""


class Toolbox:
    """Read-only tools over ``root``.  Every answer is text, and the same for the same files."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        if not self._root.is_dir():
            raise ToolError(f"{root}: expected a folder")

    def functions(self) -> tuple[Callable[..., str], ...]:
        return (self.list_files, self.read_file, self.search_text)

    def call(self, name: str, arguments: dict[str, object]) -> str:
        """Run a tool by name; what it refuses comes back as a sentence, as a model would be told."""
        tools: dict[str, Callable[..., str]] = {tool.__name__: tool for tool in self.functions()}
        if name not in tools:
            return f"error: no tool {name}, expected one of {', '.join(tools)}"
        try:
            return tools[name](**arguments)
        except (ToolError, TypeError) as error:
            return f"error: {error}"

    def list_files(
        self,
        folder: Annotated[str, "A folder, relative to the top; a dot is the top."] = ".",
        limit: Annotated[int, "How many files to list at most, the largest first."] = 12,
    ) -> str:
        """List the text files below a folder with their number of lines, the largest files first."""
        sizes = sorted((-text.count("\n"), name) for name, text in self._files(self._inside(folder)))
        if not sizes:
            return f"no text files below {folder}"
        listed = [f"{name} ({-size} lines)" for size, name in sizes[:limit]]
        if len(sizes) > limit:
            listed.append(f"({len(sizes) - limit} smaller files are not listed)")
        return "\n".join(listed)

    def read_file(
        self,
        path: Annotated[str, "A file, relative to the top."],
        start: Annotated[int, "The first line to read, counted from 1."] = 1,
        lines: Annotated[int, "How many lines to read, 60 at most."] = 24,
    ) -> str:
        """Read some lines of one text file, exactly as they stand in it."""
        file = self._inside(path)
        text = _text_of(file) if file.is_file() else None
        if text is None:
            raise ToolError(f"{path}: expected a text file")
        all_lines = text.splitlines()
        if not 1 <= start <= max(1, len(all_lines)):
            raise ToolError(f"{path}: start is {start}, expected 1 to {len(all_lines)}")
        end = min(len(all_lines), start - 1 + min(max(1, lines), _MOST_LINES))
        head = f"{path}, lines {start} to {end} of {len(all_lines)}:"
        return "\n".join([head, *(line[:_LONGEST_LINE] for line in all_lines[start - 1 : end])])

    def search_text(self, pattern: Annotated[str, "A regular expression in Python's syntax."]) -> str:
        """Find the lines that match a regular expression in all files: path, line number and the line, eight at most."""
        try:
            wanted = re.compile(pattern)
        except re.error as error:
            raise ToolError(f"pattern {pattern!r} is not a regular expression: {error}") from None
        hits = [
            f"{name}:{number}: {line.strip()[:_LONGEST_LINE]}"
            for name, text in self._files(self._root)
            for number, line in enumerate(text.splitlines(), 1)
            if wanted.search(line)
        ]
        if len(hits) > _MOST_HITS:
            hits[_MOST_HITS:] = [f"({len(hits) - _MOST_HITS} more matches)"]
        return "\n".join(hits) or f"no line matches {pattern}"

    def _inside(self, path: str) -> Path:
        full = (self._root / path).resolve()
        if not full.is_relative_to(self._root):
            raise ToolError(f"{path}: outside the folder this agent may read")
        return full

    def _files(self, folder: Path) -> Iterator[tuple[str, str]]:
        """Path and text of every text file, in the order of their paths."""
        for parent, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if not _skipped(name))
            for name in sorted(names):
                file = Path(parent, name)
                text = None if name.startswith(".") else _text_of(file)
                if text is not None:
                    yield file.relative_to(self._root).as_posix(), text


def _skipped(folder: str) -> bool:
    return folder.startswith(".") or folder in _SKIPPED_FOLDERS or folder.endswith(".egg-info")


def _text_of(file: Path) -> str | None:
    """The text of a file, or ``None`` for one that is too large, unreadable or not text."""
    try:
        if file.is_symlink() or file.stat().st_size > _LARGEST_FILE:
            return None
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
