"""Claude Code transcripts: from what was said to the requests that were sent.

Every reply of the model was the answer to one request, which held all that is above it.  The system prompt, the tools and
what the program adds on its way out (reminders, old results that are left out) are not in transcripts, so figures are for the
conversation alone; what the API reported is passed on as ``usage``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentcache.lint.readers.blocks import Line
from agentcache.lint.readers.dialects import to_record
from agentcache.lint.readers.json_text import Fault, parse
from agentcache.lint.readers.transcript import Answer, Piece, Said, Tree
from agentcache.lint.records import Keys, Place, Places, Record, Unreadable

_PATIENCE = 1000
"""Lines after which a reply that nothing followed is taken to be whole; other agents write in between."""
_PATH = re.compile(r"messages\[(\d+)\](?:\.content(?:\[(\d+)\])?)?")
_MARKS = ("parentUuid", "isSidechain", "leafUuid", "isSnapshotUpdate", "toolUseResult")
_TYPES = frozenset({"user", "assistant", "system", "summary", "progress", "attachment", "file-history-snapshot"})


def is_transcript_line(value: Mapping[str, Any]) -> bool:
    """Whether only Claude Code writes such a line."""
    if value.get("type") not in _TYPES:
        return False
    if "sessionId" in value and ("uuid" in value or isinstance(value.get("message"), Mapping)):
        return True
    return any(mark in value for mark in _MARKS)


def read_transcript(lines: Iterable[Line], file: str) -> Iterator[Record | Unreadable]:
    """A record for each reply of the model, in the order in which they began; broken lines as they come."""
    tree, open_answers = Tree(), _OpenAnswers()
    for number, raw in lines:
        if raw is not None and not raw.strip():
            continue
        value = parse(raw)
        if isinstance(value, Fault):
            yield Unreadable(file, number, value.reason)
        if not isinstance(value, Mapping):
            continue
        answer = tree.add(value, number)
        if answer is not None and answer.first.line == number and not answer.synthetic:
            open_answers.add(_Asked(answer, tree.before(answer)))
        yield from _records(open_answers.whole(number), file)
    yield from _records(open_answers.rest(), file)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A reply, which may still grow, and what it answers."""

    answer: Answer
    said: Sequence[Said]


class _OpenAnswers:
    """Replies in the order in which they began, until they are whole."""

    def __init__(self) -> None:
        self._waiting: deque[_Asked] = deque()
        self._latest: dict[str | None, Answer] = {}

    def add(self, asked: _Asked) -> None:
        self._waiting.append(asked)
        self._latest[asked.answer.agent] = asked.answer

    def whole(self, line: int) -> Iterator[_Asked]:
        """Those at the front that an agent has gone on from, or that nothing was added to for long."""
        while self._waiting:
            answer = self._waiting[0].answer
            if self._latest[answer.agent] is answer and line - answer.last_line < _PATIENCE:
                return
            yield self._waiting.popleft()

    def rest(self) -> Iterator[_Asked]:
        yield from self._waiting


def _records(found: Iterable[_Asked], file: str) -> Iterator[Record | Unreadable]:
    for asked in found:
        if asked.said:  # nothing is above a reply where a file is only the end of a conversation
            yield _record(asked.answer, asked.said, file)


def _record(answer: Answer, said: Sequence[Said], file: str) -> Record | Unreadable:
    body: dict[str, Any] = {"messages": [{"role": message.role, "content": _content(message)} for message in said]}
    reply: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "content": [piece.block for piece in answer.pieces],
        "usage": answer.usage,
    }
    if answer.model is not None:
        body["model"] = reply["model"] = answer.model
    record = to_record(body, file, answer.first.line, url="/v1/messages", response=reply)
    if isinstance(record, Unreadable):
        return record
    name = answer.session
    if name is not None and answer.agent is not None:
        name = f"{name}/{answer.agent}"
    return replace(record, session=name, source=None, places=_LinePlaces(record.places, said))


def _content(message: Said) -> str | list[Mapping[str, Any]]:
    first = message.pieces[0]
    if len(message.pieces) == 1 and first.position is None:
        return str(first.block["text"])
    return [piece.block for piece in message.pieces]


@dataclass(frozen=True, slots=True)
class _LinePlaces:
    """Places of a request that is put together from lines: ``line 12: message.content[0].text``."""

    inner: Places
    said: Sequence[Said]

    def find(self, keys: Keys, char: int | None = None) -> Place:
        place = self.inner.find(keys, char)
        found = _PATH.match(place.path)
        if found is None or int(found[1]) >= len(self.said):
            return place
        pieces = self.said[int(found[1])].pieces
        index = 0 if found[2] is None else int(found[2])
        if index >= len(pieces):
            return place
        return Place(_in_line(pieces[index], place.path[found.end() :], whole=found[2] is None), place.char)


def _in_line(piece: Piece, rest: str, *, whole: bool) -> str:
    path = f"line {piece.line}: message.content"
    if piece.position is None:  # the content is a text
        return path
    return path if whole else f"{path}[{piece.position}]{rest}"
