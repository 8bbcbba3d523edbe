"""What an input is, told by its name and its first bytes, and the reader for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from itertools import chain
from pathlib import PurePath
from typing import BinaryIO

from agentcache.lint.readers.blocks import LIMIT, InputError, Line, blocks_of, lines_of, peek
from agentcache.lint.readers.claude_code import is_transcript_line, read_transcript
from agentcache.lint.readers.faults import NoJson, WholeFile
from agentcache.lint.readers.har import entries_of, read_archive
from agentcache.lint.readers.json_text import TOO_LONG, Fault, JsonText, Raw, parse
from agentcache.lint.readers.jsonl import LineReader
from agentcache.lint.readers.prompt_files import SUFFIXES as PROMPT_SUFFIXES
from agentcache.lint.readers.prompt_files import read_prompt
from agentcache.lint.readers.traces import MARK as TRACE_MARK
from agentcache.lint.readers.traces import is_trace, read_trace
from agentcache.lint.readers.values import ValueReader, read_values
from agentcache.lint.records import Record, Unreadable

_Reader = Callable[[Iterator[Line], str], Iterator[Record | Unreadable]]

_HEAD = 2**16
_ARCHIVE = re.compile(rb'\s*\{\s*"log"\s*:\s*[{\r\n]')
_GOES_ON = re.compile(rb'[{,]\s*\n\s*["}]|\[\s*\n')
"""Where a value goes on in the next line; most lines that were cut off end otherwise."""
_SECTION = re.compile(rb"""\[+[ \t]*[A-Za-z_"'][\w."'-]*[ \t]*\]+[ \t]*(?:[#;][^\n]*)?\r?\n""")
"""The head of a section of a settings file, which begins like a list."""
_UNDECIDED = 1000
"""Lines that are looked at before it is given up to tell what writes such."""
_REQUEST = ("messages", "prompt", "input", "previous_response_id", "body", "request", "params")


_HOPELESS = 1000
"""Records that cannot be read, and none that can: it is something else."""


class Kind(Enum):
    """Which part of the linter an input is for."""

    RECORDS = "records"
    TEMPLATE = "template"
    PYTHON = "python"


_KINDS = {
    ".jinja": Kind.TEMPLATE,
    ".jinja2": Kind.TEMPLATE,
    ".j2": Kind.TEMPLATE,
    ".py": Kind.PYTHON,
    ".pyi": Kind.PYTHON,
}


def kind_of(file: str, first_bytes: bytes = b"") -> Kind:
    """
    Args:
        file: its name, ``-`` for standard input.
        first_bytes: as many as are at hand, or none: they tell scripts that have no suffix.
    """
    suffix = PurePath(file).suffix.lower()
    if not suffix and first_bytes.startswith(b"#!") and b"python" in first_bytes.partition(b"\n")[0]:
        return Kind.PYTHON
    return _KINDS.get(suffix, Kind.RECORDS)


def is_prompt(file: str) -> bool:
    """Whether the file is a prompt as it is."""
    return PurePath(file.removesuffix(".gz")).suffix.lower() in PROMPT_SUFFIXES


def open_input(stream: BinaryIO, file: str) -> Iterator[Record | Unreadable]:
    """The requests of an input: JSON in lines, in a list or spread over lines, archives, transcripts, traces, prompt files;
    also packed by gzip.

    Args:
        stream: read forwards only.
        file: its name, ``-`` for standard input.

    Raises:
        OSError: the input cannot be read on.
    """
    held: list[NoJson] = []
    latest, hopeless, why = 1, True, "nothing in it is a request"
    try:
        for record in _while_there_is_hope(_open(stream, file)):
            latest = record.line
            if hopeless and isinstance(record, NoJson):
                held.append(record)
                continue
            if hopeless:
                yield from held
                hopeless = False
            yield record
    except InputError as error:
        why = str(error)
        if not hopeless or not held:
            yield (WholeFile if hopeless else Unreadable)(file, error.line or latest, why)
            return
    else:
        if not hopeless or len(held) < 2:
            yield from held if hopeless else ()
            return
    yield WholeFile(file, held[0].line, f"{why}; line {held[0].line}: {held[0].reason}")


def _while_there_is_hope(records: Iterator[Record | Unreadable]) -> Iterator[Record | Unreadable]:
    """
    Raises:
        InputError: so much cannot be read that it is something else.
    """
    unreadable, readable = 0, False
    for record in records:
        unreadable += isinstance(record, Unreadable)
        readable = readable or isinstance(record, Record)
        yield record
        if unreadable >= _HOPELESS and not readable:
            why = f"none of the first {unreadable:,} records is a request: the rest was not read"
            raise InputError(why, record.line)


def _open(stream: BinaryIO, file: str) -> Iterator[Record | Unreadable]:
    blocks = blocks_of(stream)
    if is_prompt(file):
        return read_prompt(blocks, file)
    head, blocks = peek(blocks, _HEAD, until=b"\n")
    if PurePath(file.removesuffix(".gz")).suffix.lower() == ".har" or _ARCHIVE.match(head):
        return read_archive(JsonText(blocks), file)
    start = head.lstrip()
    if (start.startswith(b"[") and not _SECTION.match(start)) or (start.startswith(b"{") and _goes_on(start)):
        return read_values(JsonText(blocks), file)
    return _read_lines(lines_of(blocks), file)


def _goes_on(start: bytes) -> bool:
    """Whether the object that begins here is spread over lines."""
    first, _, rest = start.partition(b"\n")
    if not rest or not _GOES_ON.match(start, max(0, len(first.rstrip()) - 1)) or not isinstance(parse(first), Fault):
        return False
    second = parse(rest.lstrip().partition(b"\n")[0])
    return not (isinstance(second, Mapping) and any(name in second for name in _REQUEST))


# -- lines


def _read_lines(lines: Iterator[Line], file: str) -> Iterator[Record | Unreadable]:
    seen: list[Line] = []
    size = 0
    reader: _Reader = _read_requests
    for line in lines:
        seen.append(line)
        size += len(line.raw or b"")
        found = _reader_for(line)
        if found is not None or len(seen) >= _UNDECIDED or size > LIMIT:
            reader = found or reader
            break
    return reader(chain(seen, lines), file)


def _reader_for(line: Line) -> _Reader | None:
    """What reads lines such as this; ``None`` where others have to tell."""
    value = parse(line.raw) if line.raw is not None and line.raw.strip() else None
    if isinstance(value, Mapping):
        if is_transcript_line(value):
            return read_transcript
        if is_trace(value) or entries_of(value) is not None:
            return _read_each
        named = isinstance(value.get("type"), str) and not any(name in value for name in _REQUEST)
        return None if named else _read_requests
    broken = isinstance(value, Fault) and (line.raw or b"").lstrip().startswith(b"{")
    return None if value is None or broken else _read_requests


def _read_requests(lines: Iterator[Line], file: str) -> Iterator[Record | Unreadable]:
    reader = LineReader(file)
    for number, raw in lines:
        if raw is None:
            yield Unreadable(file, number, f"the line is {TOO_LONG}")
        elif TRACE_MARK in raw and is_trace(value := parse(raw)):
            yield read_trace(value, file, number)
        elif raw.strip():
            yield from reader.read(raw, number)


def _read_each(lines: Iterator[Line], file: str) -> Iterator[Record | Unreadable]:
    """Lines of which each says what it is: those of a server's trace, an archive in one line."""
    reader = ValueReader(file)
    for number, raw in lines:
        if raw is None or raw.strip():
            yield from reader.read_raw(Raw(number, raw), number)
