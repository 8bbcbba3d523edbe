"""JSON values one after another: requests in a list, or spread over lines as people and tools write them to be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from agentcache.lint.readers.blocks import InputError
from agentcache.lint.readers.faults import NoJson
from agentcache.lint.readers.har import EntryReader, entries_of
from agentcache.lint.readers.json_text import Fault, JsonText, Raw, parse
from agentcache.lint.readers.jsonl import LineReader
from agentcache.lint.readers.traces import is_trace, read_trace
from agentcache.lint.records import Keys, Place, Places, Record, Unreadable


def read_values(text: JsonText, file: str) -> Iterator[Record | Unreadable]:
    """A list is one of requests, which are counted from 1; other values are known by their first line.

    Raises:
        InputError: what there is is no sequence of values.
    """
    reader = ValueReader(file)
    while byte := text.peek():
        if byte == b"[":
            for number, item in enumerate(text.items(), start=1):
                yield from reader.read_raw(item, number, f"[{number - 1}]")
        elif byte in b",:]}":
            raise InputError(f"not valid JSON: there is a {byte.decode()} where a value should begin", text.line)
        else:
            raw = text.value()
            yield from reader.read_raw(raw, raw.line)


class ValueReader:
    """Reads the values of one file, in order.

    Args:
        file: its name.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._requests = LineReader(file)

    def read_raw(self, raw: Raw, number: int, within: str = "") -> Iterator[Record | Unreadable]:
        """See ``read``."""
        value = parse(raw.raw)
        if isinstance(value, Fault):
            yield _placed(NoJson(self._file, number, value.reason), within)
        else:
            yield from self.read(value, number, within)

    def read(self, value: Any, number: int, within: str = "") -> Iterator[Record | Unreadable]:
        """What one value holds: a request, an answered prompt of a trace, or the requests of an archive.

        Args:
            number: which record it is.
            within: where the value stands, such as ``[2]``; empty where it stands alone.
        """
        entries = entries_of(value)
        if entries is not None:
            yield from EntryReader(self._file).read_all(entries)
        elif is_trace(value):
            yield _placed(read_trace(value, self._file, number), within)
        else:
            for record in self._requests.records(value, number):
                # Written back as a line it would not stand where it stood.
                yield _placed(replace(record, source=None) if isinstance(record, Record) else record, within)


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
