"""Replies cut into pieces in every way, and what they must come to however they are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from agentcache.chat.replies.base import ToolFormat
from agentcache.chat.replies.pieces import CallArguments, CallStart, Content, Piece, Reasoning, ReplyMessage
from agentcache.chat.replies.reader import ReplyReader

THINK = ("<think>", "</think>")
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
    {"type": "function", "function": {"name": "wait"}},
]
HARD = '{"city":"Zürich","n":{"a":[1,{}]},"q":"say \\"}\\" and \\\\n </tool_call> [TOOL_CALLS] 👋"}'
"""Arguments with everything in them that could be taken for their end."""


def reader(format: ToolFormat | None, tags: tuple[str, str] | None = None, *, starts_open: bool = False) -> ReplyReader:
    return ReplyReader(format, TOOLS, tags, starts_open, "reply")


def read(given: ReplyReader, parts: Sequence[str]) -> list[Piece]:
    """All pieces, those of one kind that stand side by side joined; checks the order that clients rely on."""
    joined: list[Piece] = []
    started = 0
    for answer in [*map(given.push, parts), given.flush()]:
        assert not any(_same_kind(a, b) for a, b in pairwise(answer)), "neighbours of one kind in one answer"
        for piece in answer:
            if isinstance(piece, CallStart):
                assert piece.index == started
                started += 1
            elif isinstance(piece, CallArguments):
                assert piece.index == started - 1
            if not isinstance(piece, CallStart):
                assert piece.text, "an empty piece"
            last = joined[-1] if joined else None
            joined[-1:] = [piece] if last is None else _join(last, piece)
    return joined


def message(pieces: Sequence[Piece]) -> ReplyMessage:
    whole = ReplyMessage()
    for piece in pieces:
        whole.add(piece)
    return whole


def cuts(text: str) -> Iterator[list[str]]:
    """Every cut into two, and cuts into parts of 1, 2, 3, 5 and 7 characters."""
    for i in range(len(text) + 1):
        yield [text[:i], text[i:]]
    for size in (1, 2, 3, 5, 7):
        yield [text[i : i + size] for i in range(0, len(text), size)]


def as_object(arguments: str) -> dict[str, Any]:
    value = json.loads(arguments)
    assert isinstance(value, dict)
    return value


def _join(last: Piece, piece: Piece) -> list[Piece]:
    if not _same_kind(last, piece):
        return [last, piece]
    if isinstance(last, Content) and isinstance(piece, Content):
        return [Content(last.text + piece.text)]
    if isinstance(last, Reasoning) and isinstance(piece, Reasoning):
        return [Reasoning(last.text + piece.text)]
    assert isinstance(last, CallArguments) and isinstance(piece, CallArguments)
    return [CallArguments(last.index, last.text + piece.text)]


def _same_kind(a: Piece, b: Piece) -> bool:
    if isinstance(a, CallArguments) and isinstance(b, CallArguments):
        return a.index == b.index
    return type(a) is type(b) and not isinstance(a, CallStart)
