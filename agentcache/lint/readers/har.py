"""HAR archives, as browsers and proxies write them: each request to a language model is a record.

The entries are read one after another, wherever in the file they are.  Those that are no such request are left out, and
those that were answered with an error: no cache has seen them.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from agentcache.lint.readers.blocks import InputError
from agentcache.lint.readers.dialects import Sent, record_of
from agentcache.lint.readers.dialects.chain import ResponseChain
from agentcache.lint.readers.dialects.completions import single_prompts
from agentcache.lint.readers.json_text import Fault, JsonText, Raw, parse
from agentcache.lint.readers.sse import events_of
from agentcache.lint.records import Record, Unreadable

_PATHS = ("/chat/completions", "/completions", "/responses", "/messages")


def read_archive(text: JsonText, file: str) -> Iterator[Record | Unreadable]:
    """Records of an archive; ``line`` is the number of the entry, from 1.

    Raises:
        InputError: the archive ends in the middle, or is none.
    """
    reader = EntryReader(file)
    for number, entry in enumerate(_entries(text), start=1):
        value = parse(entry.raw)
        if isinstance(value, Fault):
            yield Unreadable(file, number, f"log.entries[{number - 1}]: {value.reason}")
        else:
            yield from reader.read(value, number)


def entries_of(value: Any) -> list[Any] | None:
    """The entries of an archive that was read as one value; ``None`` for any other value."""
    log = value.get("log") if isinstance(value, Mapping) else None
    entries = log.get("entries") if isinstance(log, Mapping) else None
    return entries if isinstance(entries, list) else None


class EntryReader:
    """Reads the entries of one archive, in order.

    Args:
        file: its name.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._chain = ResponseChain()

    def read_all(self, entries: Sequence[Any]) -> Iterator[Record | Unreadable]:
        for number, entry in enumerate(entries, start=1):
            yield from self.read(entry, number)

    def read(self, entry: Any, number: int) -> Iterator[Record | Unreadable]:
        """The requests of an entry: one, or none where it is none to a language model or was refused; of a completion,
        one for each of its prompts."""
        request = entry.get("request") if isinstance(entry, Mapping) else None
        if not isinstance(request, Mapping) or request.get("method") != "POST":
            return
        url = request.get("url")
        if not isinstance(url, str) or not _path(url).endswith(_PATHS) or _refused(entry.get("response")):
            return
        prefix = f"log.entries[{number - 1}].request.postData.text: "
        body = _body(request.get("postData"))
        if isinstance(body, Fault):
            yield Unreadable(self._file, number, prefix + body.reason)
        if not isinstance(body, Mapping):  # nothing, or a form
            return
        sent = Sent(body, prefix, url, _headers(request.get("headers")), _answer(entry.get("response")))
        for path, one in single_prompts(body):
            yield record_of(replace(sent, body=one, prompt=path), self._file, number, self._chain)


def _entries(text: JsonText) -> Iterator[Raw]:
    for key in ("log", "entries"):
        _enter(text, key)
    if text.peek() != b"[":
        raise InputError("log.entries is no list", text.line)
    yield from text.items()


def _enter(text: JsonText, wanted: str) -> None:
    """Go on to the value of a key of the object that begins here."""
    if not text.take(b"{"):
        raise InputError(f"no HAR archive: expected an object with {wanted}", text.line)
    while text.peek() == b'"':
        key = parse(text.value().raw)
        if not text.take(b":"):
            break
        if key == wanted:
            return
        text.value()
        text.take(b",")
    raise InputError(f"no HAR archive: there is no {wanted}", text.line)


def _path(url: str) -> str:
    try:
        return urlsplit(url).path.rstrip("/")
    except ValueError:
        return ""


def _refused(response: Any) -> bool:
    """Whether nothing was computed for it."""
    status = response.get("status") if isinstance(response, Mapping) else None
    return isinstance(status, int) and status >= 400


def _body(data: Any) -> Any | Fault:
    if not isinstance(data, Mapping):
        return None
    text = data.get("text")
    if not isinstance(text, str) or not text.strip():
        return None
    if data.get("encoding") == "base64":
        decoded = _decoded(text)
        return Fault("not valid base64") if decoded is None else parse(decoded)
    return parse(text.encode("utf-8", "surrogatepass"))


def _headers(pairs: Any) -> dict[str, str]:
    """By their names in small letters."""
    if not isinstance(pairs, list):
        return {}
    found = ((pair.get("name"), pair.get("value")) for pair in pairs if isinstance(pair, Mapping))
    return {name.lower(): value for name, value in found if isinstance(name, str) and isinstance(value, str)}


def _answer(response: Any) -> Any:
    """The JSON that was answered, or the events of a stream; ``None`` for errors and what was not kept."""
    if not isinstance(response, Mapping) or response.get("status") not in range(200, 300):
        return None
    content = response.get("content")
    if not isinstance(content, Mapping) or not isinstance(text := content.get("text"), str):
        return None
    if content.get("encoding") == "base64":
        decoded = _decoded(text)
        text = "" if decoded is None else decoded.decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None
    return events_of(text) or None


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return None
