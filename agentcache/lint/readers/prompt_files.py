"""Plain text files, such as system prompts that are kept in a repository: each is one request that says it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentcache.lint.readers.blocks import LIMIT
from agentcache.lint.records import Keys, Place, Record, Unreadable

SUFFIXES = frozenset({".txt", ".md", ".markdown", ".prompt"})


def read_prompt(blocks: Iterator[bytes], file: str) -> Iterator[Record | Unreadable]:
    """One record, or none for a file in which nothing is written."""
    raw = bytearray()
    for block in blocks:
        raw += block
        if len(raw) > LIMIT:
            yield Unreadable(file, 1, f"longer than {LIMIT // 2**20} MiB, which no prompt is")
            return
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        yield Unreadable(file, line, f"not UTF-8: byte {raw[error.start]:#04x} at byte {error.start + 1} of the file")
        return
    if text.strip():
        body = {"messages": [{"role": "system", "content": text}]}
        yield Record(file, 1, body, TextPlaces(text), session=file, dialect="prompt")


@dataclass(frozen=True, slots=True)
class TextPlaces:
    """Lines of a text, from 1, and columns, from 0."""

    text: str

    def find(self, keys: Keys, char: int | None = None) -> Place:
        if char is None:
            return Place("the prompt", line=1)
        start = self.text.rfind("\n", 0, char) + 1
        return Place("the prompt", char - start, self.text.count("\n", 0, char) + 1)
