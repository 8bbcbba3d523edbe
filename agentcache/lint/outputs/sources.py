"""Lines of linted files: findings in sources and templates are known by the text of their line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from agentcache.lint.finding import Finding
from agentcache.lint.source_text import decoded, is_text, lines_of

_ARCHIVES = (".har", ".json")
"""Files whose records are entries, not lines."""


@dataclass
class Sources:
    """
    Attributes:
        paths: where files are read that are not at their names.
    """

    paths: Mapping[str, Path] = field(default_factory=dict)
    _texts: dict[str, list[str]] = field(default_factory=dict)

    def line_of(self, finding: Finding) -> int | None:
        """The line of the file, from 1; ``None`` where a record is no line."""
        where = finding.location
        return None if PurePath(where.file).suffix.lower() in _ARCHIVES else where.record

    def column_of(self, finding: Finding) -> int | None:
        """The column, from 1, of a finding in a source, template or prompt."""
        where = finding.location
        return where.char + 1 if is_text(where.file) and where.char is not None else None

    def line(self, finding: Finding) -> str | None:
        """The text of a finding's line in a source, template or prompt."""
        where = finding.location
        if not is_text(where.file) or where.record is None:
            return None
        lines = self._lines(where.file)
        return lines[where.record - 1].rstrip("\r\n") if 1 <= where.record <= len(lines) else None

    def position(self, file: str, offset: int) -> tuple[int, int]:
        """Line and column, from 1, of a character of a source or template."""
        for number, line in enumerate(self._lines(file), 1):
            if offset < len(line):
                return number, offset + 1
            offset -= len(line)
        return len(self._lines(file)) + 1, offset + 1

    def _lines(self, file: str) -> list[str]:
        if file not in self._texts:
            try:
                content = self.paths.get(file, Path(file)).read_bytes()
                text = decoded(content, file)
            except (OSError, SyntaxError, UnicodeDecodeError):  # it was linted a moment ago, and is another file now
                text = ""
            self._texts[file] = lines_of(text)
        return self._texts[file]
