"""Claude Code transcripts: from what was said to the requests that were sent.

Every reply of the model was the answer to one request, which held all that is above it.  The system prompt, the tools and
what the program adds on its way out (reminders, old results that are left out) are not in transcripts, so figures are for the
conversation alone; what the API reported is passed on as ``usage``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.dialects.anthropic.blocks import Placed, chat_messages
from agentcache.errors import RequestError
from agentcache.lint.readers.blocks import Line
from agentcache.lint.readers.dialects.answers import read_answer
from agentcache.lint.readers.dialects.anthropic import AnthropicPlaces
from agentcache.lint.readers.dialects.placeholders import Placeholders
from agentcache.lint.readers.json_text import Fault, parse
from agentcache.lint.readers.transcript import Answer, Piece, Said, Tree
from agentcache.lint.records import Keys, Place, Record, Unreadable

_PATIENCE = 1000
"""Lines after which a reply that nothing followed is taken to be whole; other agents write in between."""
_PATH = re.compile(r"messages\[0\](?:\.content(?:\[(\d+)\])?)?")
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
    maker = _Maker(file, tree)
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
        for asked in open_answers.whole(number):
            yield from maker.make(asked)
    for asked in open_answers.rest():
        yield from maker.make(asked)


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


class _Maker:
    """Makes records.  A message is translated once, however many requests repeat it."""

    def __init__(self, file: str, tree: Tree) -> None:
        self._file = file
        self._tree = tree

    def make(self, asked: _Asked) -> Iterator[Record | Unreadable]:
        """A record, and before it what in its messages cannot be read, which is told once and left out."""
        yield from self._translate(asked.said)
        answer, placed = asked.answer, [(said, one) for said in asked.said for one in said.placed or ()]
        if not placed:  # the file holds only the end of a conversation
            return
        body: dict[str, Any] = {"messages": [one.message for _, one in placed]}
        if answer.model is not None:
            body["model"] = answer.model
        reply = read_answer(
            {"role": "assistant", "content": [piece.block for piece in answer.pieces], "usage": answer.usage}
        )
        name = answer.session
        if name is not None and answer.agent is not None:
            name = f"{name}/{answer.agent}"
        yield Record(
            self._file,
            answer.first.line,
            body,
            _LinePlaces(placed),
            session=name,
            reply=None if reply is None else reply.reply,
            usage=None if reply is None else reply.usage,
            dialect="anthropic",
        )

    def _translate(self, said: Sequence[Said]) -> Iterator[Unreadable]:
        for message in said:
            if message.placed is None:
                content = [piece.block for piece in message.pieces]
                try:
                    message.placed = chat_messages(
                        [{"role": message.role, "content": content}], self._tree.calls, Placeholders()
                    )
                except RequestError as error:
                    message.placed = ()
                    where = _in_lines(message.pieces, str(error))
                    yield Unreadable(self._file, message.pieces[0].line, where)


@dataclass(frozen=True, slots=True)
class _LinePlaces:
    """Places of a request that is put together from lines: ``line 12: message.content[0].text``."""

    placed: Sequence[tuple[Said, Placed]]

    def find(self, keys: Keys, char: int | None = None) -> Place:
        match keys:
            case ("messages", int(index), *rest) if 0 <= index < len(self.placed):
                said, placed = self.placed[index]
                inner = AnthropicPlaces("", (placed,), (), frozenset(), ())
                place = inner.find(("messages", 0, *rest), char)
                return Place(_in_lines(said.pieces, place.path), place.char)
        return Place(".".join(map(str, keys)), char)


def _in_lines(pieces: Sequence[Piece], path: str) -> str:
    """A path of the message that ``pieces`` make, as one of the line that says it."""
    found = _PATH.match(path)
    if found is None:
        return path
    piece = pieces[min(int(found[1] or 0), len(pieces) - 1)]
    if piece.position is None:  # the content is a text
        return f"line {piece.line}: message.content"
    return f"line {piece.line}: message.content" + (f"[{piece.position}]{path[found.end() :]}" if found[1] else "")
