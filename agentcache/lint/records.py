"""Reads OpenAI chat requests, one JSON object a line, without holding more than a line of the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

_WRAPPERS = ("body", "request")
"""Batch files keep the request under ``body``, some trace writers under ``request``."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a file.

    Attributes:
        file: name of the file, ``-`` for standard input.
        line: line of the file, from 1.
        body: the request body.
        prefix: where the body lies in the line's object: empty, or ``body.``.
    """

    file: str
    line: int
    body: Mapping[str, Any]
    prefix: str = ""

    @property
    def reference(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is no chat request, and why."""

    file: str
    line: int
    reason: str


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
    if not isinstance(value, dict):
        return Unreadable(file, number, f"got {_kind(value)}, expected a JSON object with messages")
    prefix = ""
    if "messages" not in value:
        for name in _WRAPPERS:
            if isinstance(value.get(name), dict):
                value, prefix = value[name], f"{name}."
                break
    if fault := _fault(value, prefix):
        return Unreadable(file, number, fault)
    return Record(file, number, value, prefix)


def _fault(body: Mapping[str, Any], prefix: str) -> str | None:
    if "messages" not in body:
        return f"{prefix}messages is missing: expected the body of an OpenAI chat request"
    messages = body["messages"]
    if not isinstance(messages, list) or not messages:
        return f"{prefix}messages: got {_kind(messages)}, expected a list with at least one message"
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            got = "an object without a role" if isinstance(message, dict) else _kind(message)
            return f"{prefix}messages[{index}]: got {got}, expected an object with a role"
        content = message.get("content")
        if content is not None and not isinstance(content, (str, list)):
            return (
                f"{prefix}messages[{index}].content: got {_kind(content)}, expected a string, a list of parts or null"
            )
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        return f"{prefix}tools: got {_kind(tools)}, expected a list"
    variables = body.get("chat_template_kwargs")
    if variables is not None and not isinstance(variables, dict):
        return f"{prefix}chat_template_kwargs: got {_kind(variables)}, expected an object"
    return None


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    empty = "an empty list" if value == [] else None
    return empty or names[type(value)]
