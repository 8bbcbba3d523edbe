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
from agentcache.server.errors import ApiError, bad_field, shown
from agentcache.server.openai.chat_writer import message_json
from agentcache.server.responses.fields import Place
from agentcache.server.responses.tools import free_arguments, inner_name

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


def read_input(given: str | Sequence[Any] | None, find: Find) -> Turn:
    """
    Raises:
        ApiError: 400 or 404, naming the item.
    """
    if given is None:
        return Turn()
    if isinstance(given, str):
        turn = Turn(messages=[{"role": "user", "content": given}], places=[Place("input")])
        turn.items.append(_kept_message({"role": "user"}, [{"type": "input_text", "text": given}]))
        return turn
    reader = _Reader(find)
    for i, item in enumerate(given):
        reader.read(item, f"input[{i}]")
    reader.close_reply()
    return reader.turn


class _Reader:
    def __init__(self, find: Find) -> None:
        self.turn = Turn()
        self._find = find
        self._reply: ReplyMessage | None = None
        self._parts: dict[str, str] = {}
        """Where the parts of the reply stand; see ``Place``."""
        self._said = False
        """Whether the last item was a message: the next one is a reply of its own."""
        self._referred_to = False

    def read(self, item: object, path: str) -> None:
        if not isinstance(item, Mapping):
            raise bad_field(path, f"got {shown(item)}, expected an input item (an object)")
        kind = item.get("type")
        self._referred_to = kind == "item_reference" or (kind is None and "role" not in item and "id" in item)
        if self._referred_to:
            item = self._referred(item, path)
            kind = item["type"]
        if kind is None and "role" in item:
            kind = "message"
        reader = _READERS.get(kind) if isinstance(kind, str) else None
        if reader is None:
            raise bad_field(f"{path}.type", f"got {shown(kind)}, expected {_SERVED}", code="unsupported_value")
        reader(self, item, path)

    # -- one reader for each type

    def message(self, item: Mapping[str, Any], path: str) -> None:
        role = item.get("role")
        if role not in _ROLES:
            raise bad_field(f"{path}.role", f"got {shown(role)}, expected one of {', '.join(_ROLES)}")
        parts = _parts(item.get("content"), path, assistant=role == "assistant")
        text = "".join(str(part[_TEXTS[part["type"]]]) for part in parts)
        self.turn.items.append(_kept_message(item, parts))
        if role != "assistant":
            self._tell({"role": role, "content": text}, path, "content")
            return
        if self._said:
            self.close_reply()
        self._said = True
        self._open_reply(path).content += text
        self._note("content", f"{path}.content")

    def reasoning(self, item: Mapping[str, Any], path: str) -> None:
        content = item.get("content") or []
        if not isinstance(content, list):
            raise bad_field(f"{path}.content", f"got {shown(content)}, expected a list of reasoning_text parts")
        texts = [_string(part, "text", f"{path}.content[{i}]") for i, part in enumerate(content)]
        if self._reply is not None and (self._reply.content or self._reply.calls or self._said):
            self.close_reply()
        self.turn.items.append(_kept(item, "reasoning", {"summary": item.get("summary") or []}))
        if texts:  # without them it says nothing to the model
            self._open_reply(path).reasoning += "".join(texts)
            self._note("reasoning_content", f"{path}.content")

    def function_call(self, item: Mapping[str, Any], path: str) -> None:
        self._call(item, path, "arguments", _string(item, "arguments", path))

    def custom_tool_call(self, item: Mapping[str, Any], path: str) -> None:
        text = _string(item, "input", path)
        self._call(item, path, "input", free_arguments(text))

    def call_output(self, item: Mapping[str, Any], path: str) -> None:
        call_id, output = _string(item, "call_id", path), item.get("output")
        if not isinstance(output, str):
            parts = _parts(output, path, key="output")
            output = "".join(str(part[_TEXTS[part["type"]]]) for part in parts)
        self.turn.items.append(_kept(item, str(item["type"])))
        self._tell({"role": "tool", "tool_call_id": call_id, "content": output}, path, "output")

    # -- replies

    def close_reply(self) -> None:
        if self._reply is not None:
            self.turn.messages.append(message_json(self._reply))
        self._reply, self._parts, self._said = None, {}, False

    def _open_reply(self, path: str) -> ReplyMessage:
        if self._reply is None:
            self._reply = ReplyMessage()
            self.turn.places.append(Place(path, self._parts))
        return self._reply

    def _note(self, part: str, path: str) -> None:
        """The first of several that are joined; of a reference, the body has no more than its id."""
        if not self._referred_to:
            self._parts.setdefault(part, path)

    def _call(self, item: Mapping[str, Any], path: str, key: str, arguments: str) -> None:
        name, namespace = _string(item, "name", path), item.get("namespace")
        inner = inner_name(name, namespace if isinstance(namespace, str) else None)
        self.turn.items.append(_kept(item, str(item["type"])))
        reply = self._open_reply(path)
        self._note(f"tool_calls[{len(reply.calls)}]", f"{path}.{key}")
        reply.calls.append(ToolCall(_string(item, "call_id", path), inner, arguments))
        self._said = False

    def _tell(self, message: Message, path: str, key: str) -> None:
        self.close_reply()
        self.turn.messages.append(message)
        self.turn.places.append(Place(path, {} if self._referred_to else {"content": f"{path}.{key}"}))

    def _referred(self, item: Mapping[str, Any], path: str) -> Item:
        name = _string(item, "id", path)
        found = self._find(name)
        if found is None:
            message = f"{path}.id: got {shown(name)}, expected an item of a response that is still kept"
            raise ApiError(404, message, param=f"{path}.id", code="item_not_found")
        return found


_READERS: dict[str, Callable[[_Reader, Mapping[str, Any], str], None]] = {
    "message": _Reader.message,
    "reasoning": _Reader.reasoning,
    "function_call": _Reader.function_call,
    "function_call_output": _Reader.call_output,
    "custom_tool_call": _Reader.custom_tool_call,
    "custom_tool_call_output": _Reader.call_output,
}


def _parts(content: object, path: str, *, key: str = "content", assistant: bool = False) -> list[Item]:
    """Content as a list of text parts."""
    if isinstance(content, str):
        return [_output_text(content) if assistant else {"type": "input_text", "text": content}]
    if not isinstance(content, list):
        raise bad_field(f"{path}.{key}", f"got {shown(content)}, expected text, or a list of text parts")
    for i, part in enumerate(content):
        where = f"{path}.{key}[{i}]"
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str) or kind not in _TEXTS:
            got = shown(kind) if isinstance(part, Mapping) else shown(part)
            why = f'got {got}, expected a part of type "input_text" or "output_text": this model reads text only'
            raise bad_field(where, why, code="unsupported_value")
        _string(part, _TEXTS[kind], where)
    return content


def _output_text(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": []}


def _string(item: object, key: str, path: str) -> str:
    value = item.get(key) if isinstance(item, Mapping) else None
    if not isinstance(value, str):
        raise bad_field(f"{path}.{key}", f"got {shown(value)}, expected text")
    return value


def _kept_message(item: Mapping[str, Any], parts: list[Item]) -> Item:
    return _kept(item, "message") | {"content": parts}


def _kept(item: Mapping[str, Any], kind: str, defaults: Mapping[str, Any] | None = None) -> Item:
    """A copy with the fields that every kept item has."""
    name = item.get("id")
    head = {"id": name if isinstance(name, str) and name else new_item_id(kind), "type": kind}
    rest = {key: value for key, value in item.items() if key not in head}
    return head | dict(defaults or {}) | rest | {"status": item.get("status") or "completed"}
