"""The output items of a response, as pieces of the reply come in, and the events that tell of them.

An item is opened by the first piece that belongs to it and closed by the first that does not::

    pieces   Reasoning Reasoning   Content Content   CallStart CallArguments   CallStart CallArguments
    items    [ reasoning ......... ][ message ..... ][ function_call ........ ][ custom_tool_call ... ]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from agentcache.chat.replies.pieces import CallStart, Content, Piece, Reasoning
from agentcache.server.responses.tools import Known, Toolbox, free_text

Event = dict[str, Any]
"""Without its sequence number."""
Logprobs = Sequence[dict[str, Any]]
"""In the shape of chat completions, which a response shares."""


class OutputItems:
    """Used for one reply.

    Args:
        seed: what the ids of the items are made from.
        toolbox: what the tools are called outside.
        logprobs: whether texts carry log-probabilities.
    """

    def __init__(self, seed: str, toolbox: Toolbox, *, logprobs: bool = False) -> None:
        self._seed = seed
        self._toolbox = toolbox
        self._with_logprobs = logprobs
        self._items: list[_Item] = []
        self._open: _Item | None = None

    def json(self) -> list[dict[str, Any]]:
        """The items so far; one that is open as far as it was written."""
        return [item.json() for item in self._items]

    def add(self, piece: Piece, logprobs: Logprobs = ()) -> Iterator[Event]:
        """Events that ``piece`` causes; ``logprobs`` of its tokens, where it is content."""
        if isinstance(piece, CallStart):
            yield from self._begin(self._call(piece))
        elif isinstance(piece, Content) and not isinstance(self._open, _Message):
            yield from self._begin(_Message(self._place("msg"), logprobs=self._with_logprobs))
        elif isinstance(piece, Reasoning) and not isinstance(self._open, _Thought):
            yield from self._begin(_Thought(self._place("rs")))
        assert self._open is not None, "arguments follow the start of their call"
        if not isinstance(piece, CallStart):
            yield from self._open.grow(piece.text, logprobs)

    def end(self, *, cut: bool) -> Iterator[Event]:
        """Close what is open; a reply of nothing at all is an empty message.

        Args:
            cut: the reply did not come to its own end.
        """
        if not self._items:
            yield from self._begin(_Message(self._place("msg"), logprobs=self._with_logprobs))
        yield from self._close("incomplete" if cut else "completed")

    def _begin(self, item: _Item) -> Iterator[Event]:
        yield from self._close("completed")
        self._items.append(item)
        self._open = item
        yield from item.opening()

    def _close(self, status: str) -> Iterator[Event]:
        if self._open is not None:
            item, self._open = self._open, None
            yield from item.closing(status)

    def _call(self, start: CallStart) -> _Item:
        known = self._toolbox.known(start.name)
        if known.kind == "custom":
            return _CustomCall(self._place("ctc"), start.id, known)
        return _FunctionCall(self._place("fc"), start.id, known)

    def _place(self, prefix: str) -> tuple[str, int]:
        index = len(self._items)
        return f"{prefix}_{self._seed}_{index}", index


class _Item(ABC):
    def __init__(self, place: tuple[str, int]) -> None:
        self.id, self.index = place
        self.status = "in_progress"
        self.texts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @abstractmethod
    def json(self) -> dict[str, Any]: ...

    def opening(self) -> Iterator[Event]:
        yield {"type": "response.output_item.added", "output_index": self.index, "item": self.json()}

    @abstractmethod
    def grow(self, text: str, logprobs: Logprobs) -> Iterator[Event]: ...

    def closing(self, status: str) -> Iterator[Event]:
        yield from self.finishing()
        self.status = status
        yield {"type": "response.output_item.done", "output_index": self.index, "item": self.json()}

    @abstractmethod
    def finishing(self) -> Iterator[Event]:
        """Events that end what the item holds."""

    def event(self, kind: str, **fields: Any) -> Event:
        return {"type": f"response.{kind}", "item_id": self.id, "output_index": self.index, **fields}


class _Part(_Item):
    """An item with one part of text.  Subclasses name the events of the text, and write the part."""

    name: str

    def __init__(self, place: tuple[str, int]) -> None:
        super().__init__(place)
        self._begun = False

    @abstractmethod
    def part(self) -> dict[str, Any]: ...

    def content(self) -> list[dict[str, Any]]:
        return [self.part()] if self._begun else []

    def opening(self) -> Iterator[Event]:
        yield from super().opening()
        self._begun = True
        yield self.event("content_part.added", content_index=0, part=self.part())

    def finishing(self) -> Iterator[Event]:
        yield self.event(f"{self.name}.done", content_index=0, text=self.text, **self.figures(None))
        yield self.event("content_part.done", content_index=0, part=self.part())

    def grow(self, text: str, logprobs: Logprobs) -> Iterator[Event]:
        self.texts.append(text)
        yield self.event(f"{self.name}.delta", content_index=0, delta=text, **self.figures(logprobs))

    def figures(self, logprobs: Logprobs | None) -> dict[str, Any]:
        """What events carry beside the text: of a delta, or of the whole text."""
        return {}


class _Message(_Part):
    name = "output_text"

    def __init__(self, place: tuple[str, int], *, logprobs: bool) -> None:
        super().__init__(place)
        self._with_logprobs = logprobs
        self._logprobs: list[dict[str, Any]] = []

    def json(self) -> dict[str, Any]:
        head = {"id": self.id, "type": "message", "status": self.status, "role": "assistant"}
        return head | {"content": self.content()}

    def part(self) -> dict[str, Any]:
        part: dict[str, Any] = {"type": "output_text", "text": self.text, "annotations": []}
        return part | ({"logprobs": list(self._logprobs)} if self._with_logprobs else {})

    def figures(self, logprobs: Logprobs | None) -> dict[str, Any]:
        if logprobs is None:
            return {"logprobs": list(self._logprobs)}
        self._logprobs += logprobs
        return {"logprobs": list(logprobs)}


class _Thought(_Part):
    name = "reasoning_text"

    def json(self) -> dict[str, Any]:
        head = {"id": self.id, "type": "reasoning", "status": self.status, "summary": []}
        return head | {"content": self.content(), "encrypted_content": None}

    def part(self) -> dict[str, Any]:
        return {"type": "reasoning_text", "text": self.text}


class _Call(_Item):
    kind: str

    def __init__(self, place: tuple[str, int], call_id: str, known: Known) -> None:
        super().__init__(place)
        self.call_id = call_id
        self.known = known

    def json(self) -> dict[str, Any]:
        head = {"id": self.id, "type": self.kind, "status": self.status, "call_id": self.call_id}
        space = {} if self.known.namespace is None else {"namespace": self.known.namespace}
        return head | {"name": self.known.name} | space | self.said()

    @abstractmethod
    def said(self) -> dict[str, Any]: ...


class _FunctionCall(_Call):
    kind = "function_call"

    def said(self) -> dict[str, Any]:
        return {"arguments": self.text}

    def grow(self, text: str, logprobs: Logprobs) -> Iterator[Event]:
        self.texts.append(text)
        yield self.event("function_call_arguments.delta", delta=text)

    def finishing(self) -> Iterator[Event]:
        yield self.event("function_call_arguments.done", name=self.known.name, arguments=self.text)


class _CustomCall(_Call):
    """Its text is a JSON string while it is written, so it is told when it is whole."""

    kind = "custom_tool_call"

    def said(self) -> dict[str, Any]:
        return {"input": "" if self.status == "in_progress" else free_text(self.text)}

    def grow(self, text: str, logprobs: Logprobs) -> Iterator[Event]:
        self.texts.append(text)
        return iter(())

    def finishing(self) -> Iterator[Event]:
        text = free_text(self.text)
        yield self.event("custom_tool_call_input.delta", delta=text)
        yield self.event("custom_tool_call_input.done", input=text)
