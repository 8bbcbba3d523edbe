"""A whole reply, read as it comes: reasoning first, then text and calls."""

from __future__ import annotations

from collections.abc import Sequence

from agentcache.chat.replies.base import ReplyParser, Tool, ToolFormat
from agentcache.chat.replies.pieces import Content, Piece, Reasoning, ReplyMessage
from agentcache.chat.replies.reasoning import ReasoningSplitter, Tags


class ReplyReader:
    """Reads one reply; of no use for a second one.

    However the text is cut, the joined pieces are the same, and those of one kind that stand side by side in one answer are
    joined already.  No text makes it fail.

    Args:
        format: how calls are written; ``None``: none are looked for, and markers are text.
        tools: what may be called.
        tags: the tags around reasoning; ``None``: none is looked for.
        starts_open: the prompt opened the reasoning.
        seed: what the ids of calls are made of; the reply's own id.
    """

    def __init__(
        self,
        format: ToolFormat | None = None,
        tools: Sequence[Tool] = (),
        tags: Tags | None = None,
        starts_open: bool = False,
        seed: str = "",
    ) -> None:
        self._splitter = None if tags is None else ReasoningSplitter(tags, starts_open=starts_open)
        self._parser: ReplyParser = _PlainText() if format is None else format.parser(tools, seed)

    def push(self, text: str) -> list[Piece]:
        """More of the reply; what is certain of it by now."""
        if self._splitter is None or self._splitter.done:
            return self._parser.push(text)
        reasoning, rest = self._splitter.push(text)
        pieces: list[Piece] = [Reasoning(reasoning)] if reasoning else []
        return pieces + self._parser.push(rest) if rest else pieces

    def flush(self) -> list[Piece]:
        """The reply is over; what was held back."""
        pieces: list[Piece] = []
        held: list[Piece] = []
        if self._splitter is not None:
            reasoning, rest = self._splitter.flush()
            pieces = [Reasoning(reasoning)] if reasoning else []
            held = self._parser.push(rest) if rest else []
        for piece in held + self._parser.flush():
            last = pieces[-1] if pieces else None
            if isinstance(piece, Content) and isinstance(last, Content):
                pieces[-1] = Content(last.text + piece.text)
            else:
                pieces.append(piece)
        return pieces

    def read(self, text: str) -> ReplyMessage:
        """The whole reply."""
        message = ReplyMessage()
        for piece in self.push(text) + self.flush():
            message.add(piece)
        return message


class _PlainText:
    """Everything is content."""

    def push(self, text: str) -> list[Piece]:
        return [Content(text)] if text else []

    def flush(self) -> list[Piece]:
        return []
