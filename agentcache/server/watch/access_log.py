"""One line for each HTTP request on the logger ``agentcache.access``; never what was asked or answered, never a key."""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, Literal, TextIO
from urllib.parse import quote

from agentcache.server.watch.exchanges import Exchange

access_logger = logging.getLogger("agentcache.access")

_LONGEST = 512
"""Characters of a path, or of another word that a client chose, that are logged."""
_QUEUED = 10_000
"""Lines that wait to be written."""
_LAST_LINES_S = 1.0
"""How long the last of them may take when the server stops."""
_PROBES = frozenset({"/health", "/metrics"})
"""Routes that are asked every few seconds by machines, whose lines would bury all others."""
_PLAIN = re.compile(r"[A-Za-z0-9._:/\[\]{}-]+")
"""Words that stand in a line of text as they are; others are quoted."""
_IN_PATHS = "/:@!$&'()*+,;=~"


class AccessLog:
    """A reader of exchanges.

    A line of text is ``time method path status seconds bytes`` and then ``name=value``, of which those without a value are
    left out; a line of JSON is an object with the same names.  Probes that were answered well are no lines.

    Args:
        style: how a line is written.
    """

    def __init__(self, style: Literal["text", "json"]) -> None:
        self._write = _text if style == "text" else _json

    def note(self, exchange: Exchange) -> None:
        if access_logger.isEnabledFor(logging.INFO) and not _is_dull(exchange):
            access_logger.info("%s", self._write(_fields(exchange)))


@contextmanager
def access_log_on_stderr() -> Iterator[None]:
    """While it lasts, lines go to standard error as they are, whatever else the process logs."""
    handler = LineWriter(_descriptor(sys.stderr))
    before = access_logger.level, access_logger.propagate
    access_logger.addHandler(handler)
    access_logger.setLevel(logging.INFO)
    access_logger.propagate = False
    try:
        yield
    finally:
        access_logger.removeHandler(handler)
        access_logger.setLevel(before[0])
        access_logger.propagate = before[1]
        handler.close()


class LineWriter(logging.Handler):
    """Writes lines to a descriptor on a thread of its own.

    A pipe that nobody empties, such as that of a script which never reads its server's errors, stops the thread, and what
    does not fit into the queue is dropped; requests are served all the same.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: queue.Queue[str | None] = queue.Queue(_QUEUED)
        # A daemon that holds no lock while it writes: one that hangs does not keep the process from ending.
        self._thread = threading.Thread(target=self._write_all, name="agentcache-access-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record) + "\n")
        except queue.Full:
            pass

    def close(self) -> None:
        """Wait for what is queued to be written, for a moment at most."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            pass
        else:
            self._thread.join(_LAST_LINES_S)
        super().close()

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            rest = line.encode("utf-8", "backslashreplace")
            try:
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError:  # nobody reads it any more
                return


def _descriptor(stream: TextIO | None) -> int:
    try:
        return 2 if stream is None else stream.fileno()
    except (OSError, ValueError):
        return 2


def _is_dull(exchange: Exchange) -> bool:
    return exchange.route in _PROBES and 200 <= exchange.status < 300


def _fields(exchange: Exchange) -> dict[str, Any]:
    started = datetime.fromtimestamp(exchange.started, timezone.utc)
    return {
        "time": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "method": exchange.method,
        "path": _escaped(exchange.path),
        "status": exchange.status,
        "seconds": round(exchange.total_s, 4),
        "bytes": exchange.sent_bytes,
        "id": exchange.request_id,
        "client": None if exchange.client is None else exchange.client[0],
        **_generated(exchange),
    }


def _generated(exchange: Exchange) -> dict[str, Any]:
    record = exchange.record
    if record is None:
        return {}
    return {
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens if record.measured else None,
        "computed_tokens": record.computed_tokens if record.measured else None,
        "completion_tokens": record.completion_tokens if record.measured else None,
        "first_token_s": None if record.first_token_s is None else round(record.first_token_s, 4),
        "miss": None if record.miss is None else record.miss["code"],
        "finish": ",".join(dict.fromkeys(record.finish_reasons)) or None,
        "session": record.session,
        "error": record.error,
    }


def _escaped(path: str) -> str:
    """Whatever is not printable ASCII, or is white space or a quote, as ``%XX``: a path is one word of one line."""
    cut = path if len(path) <= _LONGEST else path[:_LONGEST] + "~"
    return quote(cut, safe=_IN_PATHS, errors="replace")


def _text(fields: dict[str, Any]) -> str:
    bare = ("time", "method", "path", "status")
    words = [str(fields[name]) for name in bare]
    words += [f"{fields['seconds']}s", f"{fields['bytes']}B"]
    rest = (item for item in fields.items() if item[0] not in {*bare, "seconds", "bytes"} and item[1] is not None)
    return " ".join([*words, *(f"{name}={_word(str(value))}" for name, value in rest)])


def _word(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text[:_LONGEST])


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields)
