"""Reads requests, one JSON object a line, without holding more than a line of the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from agentcache.lint.readers.dialects import to_record
from agentcache.lint.readers.dialects.kinds import kind
from agentcache.lint.records import Record, Unreadable

_WRAPPERS = ("body", "request")
"""Batch files keep the request under ``body``, some trace writers under ``request``."""
_REQUEST = ("messages", "prompt", "input")


def read_records(stream: BinaryIO, file: str) -> Iterator[Record | Unreadable]:
    """Every line of ``stream`` that is not blank, as a request or as the reason why it is none.

    Raises:
        OSError: the file cannot be read on.
    """
    for number, raw in enumerate(stream, start=1):
        line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if line.strip():
            yield _read_line(line, file, number)


def _read_line(raw: bytes, file: str, number: int) -> Record | Unreadable:
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Unreadable(
            file, number, f"not UTF-8: byte {raw[error.start]:#04x} at byte {error.start + 1} of the line"
        )
    except json.JSONDecodeError as error:
        return Unreadable(
            file, number, f"not valid JSON: {error.msg[0].lower()}{error.msg[1:]} at character {error.pos + 1}"
        )
    except (RecursionError, ValueError) as error:  # nested too deep, or a number with too many digits
        return Unreadable(file, number, f"not readable as JSON: {error}")
    record = _record(value, file, number)
    return replace(record, source=value) if isinstance(record, Record) else record


def _record(value: Any, file: str, number: int) -> Record | Unreadable:
    if not isinstance(value, dict):
        return Unreadable(file, number, f"got {kind(value)}, expected a JSON object with messages")
    if not any(name in value for name in _REQUEST):
        for name in _WRAPPERS:
            if isinstance(value.get(name), dict):
                return to_record(value[name], file, number, prefix=f"{name}.")
    return to_record(value, file, number)
