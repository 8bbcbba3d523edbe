"""JSON values one after another: requests in a list, or spread over lines as people and tools write them to be read."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from agentcache.lint.readers.blocks import InputError
from agentcache.lint.readers.har import entries_of, entry_record
from agentcache.lint.readers.json_text import Fault, JsonText, Raw, parse
from agentcache.lint.readers.jsonl import read_records
from agentcache.lint.readers.traces import is_trace, read_trace
from agentcache.lint.records import Keys, Place, Places, Record, Unreadable


def read_values(text: JsonText, file: str) -> Iterator[Record | Unreadable]:
    """A list is one of requests, which are counted from 1; other values are known by their first line.

    Raises:
        InputError: what there is is no sequence of values.
    """
    while byte := text.peek():
        if byte == b"[":
            for number, item in enumerate(text.items(), start=1):
                yield from _read_raw(item, file, number, f"[{number - 1}]")
        elif byte in b",:]}":
            raise InputError(f"not valid JSON: there is a {byte.decode()} where a value should begin", text.line)
        else:
            raw = text.value()
            yield from _read_raw(raw, file, raw.line, "")


def read_value(value: Any, file: str, number: int, within: str = "") -> Iterator[Record | Unreadable]:
    """What one value holds: a request, an answered prompt of a trace, or the requests of an archive.

    Args:
        number: which record it is.
        within: where the value stands, such as ``[2]``; empty where it stands alone.
    """
    entries = entries_of(value)
    if entries is not None:
        found = (entry_record(entry, file, index) for index, entry in enumerate(entries, start=1))
        yield from (record for record in found if record is not None)
    elif is_trace(value):
        yield _placed(read_trace(value, file, number), within)
    else:
        # As a line of a file is read; it could not be written back as one.
        for record in read_records(io.BytesIO(json.dumps(value).encode()), file):
            numbered = replace(record, line=number)
            yield _placed(replace(numbered, source=None) if isinstance(numbered, Record) else numbered, within)


def _read_raw(raw: Raw, file: str, number: int, within: str) -> Iterator[Record | Unreadable]:
    value = parse(raw.raw)
    if isinstance(value, Fault):
        yield _placed(Unreadable(file, number, value.reason), within)
    else:
        yield from read_value(value, file, number, within)


def _placed(record: Record | Unreadable, within: str) -> Record | Unreadable:
    if not within:
        return record
    if isinstance(record, Unreadable):
        return replace(record, reason=f"{within}: {record.reason}")
    return replace(record, places=_Within(f"{within}.", record.places))


@dataclass(frozen=True, slots=True)
class _Within:
    """Places of an item of a list."""

    prefix: str
    inner: Places

    def find(self, keys: Keys, char: int | None = None) -> Place:
        place = self.inner.find(keys, char)
        return Place(self.prefix + place.path, place.char)
