"""Pieces of a reply as content blocks: events of a stream, and the list that such events add up to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from agentcache.chat.replies.pieces import CallArguments, CallStart, Content, Piece, Reasoning
from agentcache.server.call_input import CallInput

Event = dict[str, Any]


class ContentBlocks:
    """The events of one reply, in order::

        content_block_start (index 0)  content_block_delta ...  content_block_stop   content_block_start (index 1) ...

    Args:
        show_thinking: whether the client asked to see what the model thought; it is told that it did in any case.
    """

    def __init__(self, *, show_thinking: bool = True) -> None:
        self._show_thinking = show_thinking
        self._index = -1
        self._kind: str | None = None
        self._call: int | None = None
        self._input = CallInput()
        self._thought = hashlib.sha256()
        self.calls = 0

    def add(self, piece: Piece) -> list[Event]:
        if isinstance(piece, Content):
            return [*self._in("text"), self._delta("text_delta", text=piece.text)] if piece.text else []
        if isinstance(piece, Reasoning):
            events = self._in("thinking")
            self._thought.update(piece.text.encode())
            shown = self._show_thinking and piece.text
            return [*events, self._delta("thinking_delta", thinking=piece.text)] if shown else events
        if isinstance(piece, CallStart):
            return self._begin_call(piece)
        return self._arguments(piece)

    def close(self) -> list[Event]:
        """The reply is over.  One without anything in it is an empty text: many clients look at the first block."""
        return [*([] if self._index >= 0 else self._in("text")), *self._end()]

    def _in(self, kind: str) -> list[Event]:
        """Events that lead to an open block of ``kind``, which joins neighbouring pieces."""
        if self._kind == kind:
            return []
        fields = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": ""}
        return [*self._end(), self._start({"type": kind, **fields})]

    def _begin_call(self, piece: CallStart) -> list[Event]:
        events = self._end()
        self.calls += 1
        self._call, self._input = piece.index, CallInput()
        return [*events, self._start({"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}})]

    def _arguments(self, piece: CallArguments) -> list[Event]:
        if self._kind != "tool_use" or self._call != piece.index:
            return []
        text = self._input.push(piece.text)
        return [self._delta("input_json_delta", partial_json=text)] if text else []

    def _end(self) -> list[Event]:
        if self._kind is None:
            return []
        events = []
        if self._kind == "tool_use" and (rest := self._input.end()):
            events.append(self._delta("input_json_delta", partial_json=rest))
        if self._kind == "thinking":
            # Clients drop thinking that comes without one, or send it back as plain text.
            events.append(self._delta("signature_delta", signature=self._thought.hexdigest()))
            self._thought = hashlib.sha256()
        self._kind = None
        return [*events, {"type": "content_block_stop", "index": self._index}]

    def _start(self, block: dict[str, Any]) -> Event:
        self._index += 1
        self._kind = block["type"]
        return {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, kind: str, **fields: str) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": {"type": kind, **fields}}


def content_of(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The ``content`` of a message that is not streamed: what a client makes of the events of one that is."""
    blocks: list[dict[str, Any]] = []
    parts: list[dict[str, list[str]]] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
            parts.append({})
        elif event["type"] == "content_block_delta":
            for key, text in event["delta"].items():
                if key != "type":
                    parts[event["index"]].setdefault(key, []).append(text)
    for block, texts in zip(blocks, parts, strict=True):
        joined = {key: "".join(pieces) for key, pieces in texts.items()}
        if block["type"] == "tool_use":
            block["input"] = json.loads(joined.pop("partial_json", "{}"))
        block.update(joined)
    return blocks
