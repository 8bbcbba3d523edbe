"""Input items: checked, completed as they are kept, and turned into the messages of a chat completion.

What one reply consisted of comes back as several items, and becomes one message again::

    items     reasoning   message   function_call   function_call   function_call_output   message
    messages  [ assistant: reasoning_content, content, tool_calls ] [ tool ............ ]  [ user ]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from agentcache.chat.replies.pieces import ReplyMessage, ToolCall
from agentcache.dialects.foreign import Foreign
from agentcache.dialects.joined import Joined, Piece
from agentcache.dialects.reply_message import message_json
from agentcache.dialects.responses.places import Place
from agentcache.dialects.responses.tools import free_arguments, inner_name
from agentcache.dialects.wording import refuse, shown
from agentcache.errors import RequestError

Item = dict[str, Any]
Message = dict[str, Any]
Find = Callable[[str], Item | None]
"""An item that was kept before, by its id."""

_ROLES = ("user", "assistant", "system", "developer")
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""Type of a content part -> the key that holds its text."""
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
}
_SERVED = ", ".join(_PREFIXES) + " or item_reference"


class ItemNotFoundError(RequestError):
    """A reference to an item that is not kept."""


def new_item_id(kind: str) -> str:
    return f"{_PREFIXES[kind]}_{uuid4().hex}"


@dataclass
class Turn:
    """What a request adds to its conversation.

    Attributes:
        items: as they are kept and listed.
        messages: what the model is told.
        places: where in the body each message stands.
    """

    items: list[Item] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)


def read_input(given: str | Sequence[Any] | None, find: Find, foreign: Foreign) -> Turn:
    """
    Raises:
        ItemNotFoundError, RequestError: naming the item.
    """
    if given is None:
        return Turn()
    if isinstance(given, str):
        place = Place("input", pieces={"content": [Piece(0, "input")]})
        turn = Turn(messages=[{"role": "user", "content": given}], places=[place])
        turn.items.append(_kept_message({"role": "user"}, [{"type": "input_text", "text": given}]))
        return turn
    reader = _Reader(find, foreign)
    for i, item in enumerate(given):
        reader.read(item, f"input[{i}]")
    reader.close_reply()
    return reader.turn


class _Reply:
    """A reply in the making, and where its parts stand; see ``Place``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.calls: list[ToolCall] = []
        self.content = Joined()
        self.reasoning = Joined()
        self.parts: dict[str, str] = {}
        self.said = False
        """Whether the last item was a message: the next one is a reply of its own."""

    def message(self) -> Message:
        return message_json(ReplyMessage(self.content.text, self.reasoning.text, self.calls))

    def place(self) -> Place:
        pieces = {"content": self.content.pieces, "reasoning_content": self.reasoning.pieces}
        return Place(self.path, self.parts, pieces)


class _Reader:
    def __init__(self, find: Find, foreign: Foreign) -> None:
        self.turn = Turn()
        self._find = find
        self._foreign = foreign
        self._reply: _Reply | None = None
        self._at = ""
        """The item that is being read."""
        self._referred_to = False

    def read(self, item: object, path: str) -> None:
        if not isinstance(item, Mapping):
            raise refuse(path, f"got {shown(item)}, expected an input item (an object)")
        self._at = path
        kind = item.get("type")
        self._referred_to = kind == "item_reference" or (kind is None and "role" not in item and "id" in item)
        if self._referred_to:
            item = self._referred(item, path)
            kind = item["type"]
        if kind is None and "role" in item:
            kind = "message"
        reader = _READERS.get(kind, _Reader.foreign_item) if isinstance(kind, str) else _Reader.foreign_item
        reader(self, item, path)

    # -- one reader for each type

    def message(self, item: Mapping[str, Any], path: str) -> None:
        role = item.get("role")
        if role not in _ROLES:
            raise refuse(f"{path}.role", f"got {shown(role)}, expected one of {', '.join(_ROLES)}")
        joined, content = Joined(), item.get("content")
        if role == "assistant":
            if self._reply is not None and self._reply.said:
                self.close_reply()
            reply = self._open_reply(path)
            reply.said = True
            joined = reply.content
            self._note("content", f"{path}.content")
        self._join(joined, content, f"{path}.content")
        self.turn.items.append(_kept_message(item, _parts(content, assistant=role == "assistant")))
        if role != "assistant":
            self._tell({"role": role, "content": joined.text}, path, "content", joined)

    def reasoning(self, item: Mapping[str, Any], path: str) -> None:
        content = item.get("content") or []
        if not isinstance(content, list):
            raise refuse(f"{path}.content", f"got {shown(content)}, expected a list of reasoning_text parts")
        texts = [_string(part, "text", f"{path}.content[{i}]") for i, part in enumerate(content)]
        reply = self._reply
        if reply is not None and (reply.content.text or reply.calls or reply.said):
            self.close_reply()
        self.turn.items.append(_kept(item, "reasoning", {"summary": item.get("summary") or []}))
        if texts:  # without them it says nothing to the model
            reply = self._open_reply(path)
            for i, text in enumerate(texts):
                self._add(reply.reasoning, text, f"{path}.content[{i}].text")
            self._note("reasoning_content", f"{path}.content")

    def function_call(self, item: Mapping[str, Any], path: str) -> None:
        self._call(item, path, "arguments", _string(item, "arguments", path))

    def custom_tool_call(self, item: Mapping[str, Any], path: str) -> None:
        text = _string(item, "input", path)
        self._call(item, path, "input", free_arguments(text))

    def call_output(self, item: Mapping[str, Any], path: str) -> None:
        call_id, output = _string(item, "call_id", path), item.get("output")
        joined = Joined()
        self._join(joined, output, f"{path}.output")
        self.turn.items.append(_kept(item, str(item["type"])))
        self._tell({"role": "tool", "tool_call_id": call_id, "content": joined.text}, path, "output", joined)

    def foreign_item(self, item: Mapping[str, Any], path: str) -> None:
        """One that no chat completion has: it belongs to the reply, or is the output of a call."""
        kind = item.get("type")
        why = f"got {shown(kind)}, expected {_SERVED}"
        text = self._foreign.text(item, refuse(f"{path}.type", why, code="unsupported_value"))
        self.turn.items.append(dict(item))
        if str(kind).endswith("_output"):
            joined = Joined()
            joined.add(text, path, None)
            self._tell({"role": "tool", "tool_call_id": str(item.get("call_id")), "content": text}, path, "", joined)
        else:
            self._open_reply(path).content.add(text, path, None)

    # -- replies

    def close_reply(self) -> None:
        if self._reply is not None:
            self.turn.messages.append(self._reply.message())
            self.turn.places.append(self._reply.place())
        self._reply = None

    def _open_reply(self, path: str) -> _Reply:
        if self._reply is None:
            self._reply = _Reply(path)
        return self._reply

    def _note(self, part: str, path: str) -> None:
        """The first of several that are joined; of a reference, the body has no more than its id."""
        if self._reply is not None and not self._referred_to:
            self._reply.parts.setdefault(part, path)

    def _add(self, joined: Joined, text: str, path: str, char: int | None = 0) -> None:
        """A string of the body; of an item that is referred to, the body has no more than the reference."""
        joined.add(text, *((self._at, None) if self._referred_to else (path, char)))

    def _join(self, joined: Joined, content: object, path: str) -> None:
        """Text, or the texts of a list of parts."""
        if isinstance(content, str):
            self._add(joined, content, path)
            return
        if not isinstance(content, list):
            raise refuse(path, f"got {shown(content)}, expected text, or a list of text parts")
        for i, part in enumerate(content):
            where = f"{path}[{i}]"
            kind = part.get("type") if isinstance(part, Mapping) else None
            if isinstance(kind, str) and kind in _TEXTS:
                key = _TEXTS[kind]
                self._add(joined, _string(part, key, where), f"{where}.{key}")
            else:
                self._add(joined, self._foreign_part(part, where), where, None)

    def _foreign_part(self, part: object, path: str) -> str:
        got = shown(part.get("type")) if isinstance(part, Mapping) else shown(part)
        why = f'got {got}, expected a part of type "input_text" or "output_text": this model reads text only'
        refusal = refuse(path, why, code="unsupported_value")
        if not isinstance(part, Mapping):
            raise refusal
        return self._foreign.text(part, refusal)

    def _call(self, item: Mapping[str, Any], path: str, key: str, arguments: str) -> None:
        name, namespace = _string(item, "name", path), item.get("namespace")
        inner = inner_name(name, namespace if isinstance(namespace, str) else None)
        self.turn.items.append(_kept(item, str(item["type"])))
        reply = self._open_reply(path)
        self._note(f"tool_calls[{len(reply.calls)}]", f"{path}.{key}")
        reply.calls.append(ToolCall(_string(item, "call_id", path), inner, arguments))
        reply.said = False

    def _tell(self, message: Message, path: str, key: str, joined: Joined) -> None:
        self.close_reply()
        self.turn.messages.append(message)
        parts = {} if self._referred_to or not key else {"content": f"{path}.{key}"}
        self.turn.places.append(Place(path, parts, {"content": joined.pieces}))

    def _referred(self, item: Mapping[str, Any], path: str) -> Item:
        name = _string(item, "id", path)
        found = self._find(name)
        if found is None:
            message = f"{path}.id: got {shown(name)}, expected an item of a response that is still kept"
            raise ItemNotFoundError(message, f"{path}.id", "item_not_found")
        return found


_READERS: dict[str, Callable[[_Reader, Mapping[str, Any], str], None]] = {
    "message": _Reader.message,
    "reasoning": _Reader.reasoning,
    "function_call": _Reader.function_call,
    "function_call_output": _Reader.call_output,
    "custom_tool_call": _Reader.custom_tool_call,
    "custom_tool_call_output": _Reader.call_output,
}


def _parts(content: Any, *, assistant: bool) -> list[Item]:
    """Content, text or a list of parts, as a list of parts."""
    if not isinstance(content, str):
        return list(content)
    return [_output_text(content) if assistant else {"type": "input_text", "text": content}]


def _output_text(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": []}


def _string(item: object, key: str, path: str) -> str:
    value = item.get(key) if isinstance(item, Mapping) else None
    if not isinstance(value, str):
        raise refuse(f"{path}.{key}", f"got {shown(value)}, expected text")
    return value


def _kept_message(item: Mapping[str, Any], parts: list[Item]) -> Item:
    return _kept(item, "message") | {"content": parts}


def _kept(item: Mapping[str, Any], kind: str, defaults: Mapping[str, Any] | None = None) -> Item:
    """A copy with the fields that every kept item has."""
    name = item.get("id")
    head = {"id": name if isinstance(name, str) and name else new_item_id(kind), "type": kind}
    rest = {key: value for key, value in item.items() if key not in head}
    return head | dict(defaults or {}) | rest | {"status": item.get("status") or "completed"}
