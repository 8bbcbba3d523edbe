"""What a reply consists of, in the order in which it is written.

::

    <think>so …</think>Let me look.<tool_call>{"name": "read", "arguments": {"path": "a.py"}}</tool_call>
    [ Reasoning ]      [ Content  ]            CallStart(0, id, "read")  CallArguments(0, '{"path": "a.py"}')
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Content:
    """Text that is meant to be read."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model wrote for itself before it replied."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool is called; its arguments follow.  ``index`` counts the calls of a reply."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the arguments of call ``index``, as the model wrote them."""

    index: int
    text: str


Piece: TypeAlias = Content | Reasoning | CallStart | CallArguments


@dataclass(slots=True)
class ToolCall:
    """A whole call; ``arguments`` is the text that the model wrote."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class ReplyMessage:
    """A whole reply, or as much of one as has been read."""

    content: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    def add(self, piece: Piece) -> None:
        if isinstance(piece, Content):
            self.content += piece.text
        elif isinstance(piece, Reasoning):
            self.reasoning += piece.text
        elif isinstance(piece, CallStart):
            self.calls.append(ToolCall(piece.id, piece.name))
        else:
            self.calls[piece.index].arguments += piece.text
