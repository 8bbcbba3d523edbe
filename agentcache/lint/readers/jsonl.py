"""Reads requests, one JSON object a line, without holding more than a line of the file.

A line is the body of a request, or an object that has it, and perhaps what was answered, among other things::

    {"messages": […]}                                                   {"messages": […], "response": {…}}
    {"custom_id": "7", "method": "POST", "url": "/v1/…", "body": {…}}   {"request": {"headers": {…}, "body": {…}}, "reply": …}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, BinaryIO

from agentcache.lint.readers.dialects import Sent, record_of
from agentcache.lint.readers.dialects.chain import ResponseChain
from agentcache.lint.readers.dialects.completions import single_prompts
from agentcache.lint.readers.dialects.kinds import kind
from agentcache.lint.readers.dialects.names import ignored_in, session_of
from agentcache.lint.readers.faults import NoJson
from agentcache.lint.readers.json_text import Fault, parse
from agentcache.lint.records import Record, Unreadable

_REQUEST = ("messages", "prompt", "input", "previous_response_id")
"""A body has one of these."""
_WRAPPERS = ("body", "request", "params", "input")
"""Where batch files and traces keep a request; ``input`` only of an object, for in a body it is text or a list."""
_ANSWERS = ("response", "reply", "completion", "result", "output")
_URLS = ("url", "path", "endpoint", "route")


def read_records(stream: BinaryIO, file: str) -> Iterator[Record | Unreadable]:
    """Every line of ``stream`` that is not blank, as a request or as the reason why it is none.

    A completion of several prompts is as many requests.

    Raises:
        OSError: the file cannot be read on.
    """
    reader = LineReader(file)
    for number, raw in enumerate(stream, start=1):
        line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if line.strip():
            yield from reader.read(line, number)


class LineReader:
    """Reads the lines of one file, in order.

    Args:
        file: its name.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._chain = ResponseChain()

    def read(self, raw: bytes, number: int) -> Iterator[Record | Unreadable]:
        """
        Args:
            number: of the line, from 1.
        """
        value = parse(raw)
        if isinstance(value, Fault):
            yield NoJson(self._file, number, value.reason)
            return
        yield from self.records(value, number)

    def records(self, value: Any, number: int) -> Iterator[Record | Unreadable]:
        """The requests of a line that has been parsed: one, but for a completion of several prompts."""
        if not isinstance(value, dict):
            yield NoJson(self._file, number, f"got {kind(value)}, expected a JSON object with messages")
            return
        sent, around = _sent(value)
        for path, body in single_prompts(sent.body):
            record = record_of(replace(sent, body=body, prompt=path), self._file, number, self._chain)
            yield _told_around(record, value, around) if isinstance(record, Record) else record


def _sent(value: Mapping[str, Any]) -> tuple[Sent, Mapping[str, Any]]:
    """The request of a line, and what is told around it."""
    body, prefix, around = value, "", dict[str, Any]()
    while not any(isinstance(body.get(name), (str, list)) for name in _REQUEST):
        name = next((name for name in _WRAPPERS if isinstance(body.get(name), dict)), None)
        if name is None or prefix.count(".") > 1:
            break
        around |= body
        body, prefix = body[name], f"{prefix}{name}."
    told = {**body, **around}
    return Sent(body, prefix, _first(told, _URLS), _headers(told), _answer(body, around)), around


def _answer(body: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    """An answer stands beside the request; in a bare body, under a name that no request has."""
    return next((holder[name] for holder in (around, body) for name in _ANSWERS if holder.get(name) is not None), None)


def _first(told: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if isinstance(value := told.get(name), str)), None)


def _headers(told: Mapping[str, Any]) -> dict[str, str]:
    headers = told.get("headers")
    if not isinstance(headers, Mapping):
        return {}
    return {str(name): value for name, value in headers.items() if isinstance(value, str)}


def _told_around(record: Record, value: Mapping[str, Any], around: Mapping[str, Any]) -> Record:
    """``record`` with what the line says outside of the body."""
    return replace(
        record,
        session=record.session or session_of(around, None),
        source=value,
        ignored={**ignored_in(around), **record.ignored},
    )
