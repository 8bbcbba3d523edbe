"""Messages made of content blocks, as chat messages.

::

    user       [ tool_result ][ tool_result ][ text ][ text ]   ->  tool, tool, user
    assistant  [ thinking ][ text ][ tool_use ][ tool_use ]     ->  one assistant message with reasoning and calls

Blocks of text are joined as they are, so a text renders to the same tokens however a client cuts it into blocks.  Messages
are translated one by one and never merged: a longer history begins like a shorter one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentcache.chat.messages import Message
from agentcache.dialects.anthropic.checks import check_cache_control, text_of
from agentcache.dialects.foreign import Foreign
from agentcache.dialects.joined import Joined, Piece
from agentcache.dialects.wording import got, refuse, shown

_ATTRIBUTION = re.compile(r"\s*x-anthropic-billing-header:[^\n]*\n?")
"""Claude Code tells Anthropic's accounting in a block of the system text which build sends a request, and adds a checksum of
the request.  It is no instruction, and as it differs in every request nothing behind it could ever be read from the cache."""
_ROLES = ("user", "assistant", "system")


@dataclass(frozen=True)
class Placed:
    """A chat message, and the place in the body that it was made of.

    Attributes:
        index: of the message in the body; ``None`` for the system text.
        content, reasoning: the strings that the message's texts were joined of.
        calls: paths of the blocks that its calls were made of.
    """

    message: Message
    place: str
    index: int | None
    content: Sequence[Piece] = ()
    reasoning: Sequence[Piece] = ()
    calls: Sequence[str] = ()


@dataclass
class Calls:
    """Ids of the calls so far, and the names of what was called."""

    names: dict[str, str] = field(default_factory=dict)


class Block(NamedTuple):
    """A content block, its path, and that of its text where it has one."""

    place: str
    value: Mapping[str, Any]
    text: str


def system_message(system: str | Sequence[Mapping[str, Any]] | None, foreign: Foreign) -> Placed | None:
    """The system text, without what is meant for Anthropic's accounting; ``None`` where it is empty.

    Raises:
        RequestError: a block that is no text.
    """
    joined = Joined()
    if isinstance(system, str):
        joined.add(system[_header(system) :], "system", _header(system))
    else:
        for i, block in enumerate(system or ()):
            text, path, char = _text(Block(f"system[{i}]", block, f"system[{i}].text"), foreign)
            header = _header(text)
            joined.add(text[header:], path, None if char is None else header)
    content = joined.text
    return Placed({"role": "system", "content": content}, "system", None, joined.pieces) if content else None


def _header(text: str) -> int:
    found = _ATTRIBUTION.match(text)
    return 0 if found is None else found.end()


def chat_messages(messages: Sequence[Mapping[str, Any]], calls: Calls, foreign: Foreign) -> list[Placed]:
    """
    Args:
        calls: made earlier in the conversation; those of ``messages`` are added.

    Raises:
        RequestError: naming the message, block and field.
    """
    placed: list[Placed] = []
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        role = message.get("role")
        if role not in _ROLES:
            raise refuse(f"{place}.role", f"got {got(role)}, expected user, assistant or system")
        check_cache_control(message, place)
        blocks = _blocks(message.get("content"), f"{place}.content")
        reader = _Reader(str(role), index, calls, foreign)
        placed += [reader.reply(blocks, place)] if role == "assistant" else reader.said(blocks, place)
    return placed


def _blocks(content: object, place: str) -> list[Block]:
    if isinstance(content, str):
        return [Block(place, {"type": "text", "text": content}, place)]
    if not isinstance(content, list):
        raise refuse(place, f"got {got(content)}, expected text or a list of content blocks")
    blocks: list[Block] = []
    for i, block in enumerate(content):
        at = f"{place}[{i}]"
        if isinstance(block, str):
            blocks.append(Block(at, {"type": "text", "text": block}, at))
            continue
        if not isinstance(block, Mapping):
            raise refuse(at, f"got {shown(block)}, expected a content block (an object with a type)")
        check_cache_control(block, at)
        blocks.append(Block(at, block, f"{at}.text"))
    return blocks


class _Reader:
    """Reads the blocks of one message."""

    def __init__(self, role: str, index: int, calls: Calls, foreign: Foreign) -> None:
        self._role = role
        self._index = index
        self._calls = calls
        self._foreign = foreign

    def said(self, blocks: Sequence[Block], place: str) -> list[Placed]:
        """Messages of a user (or of the system, in the middle of a conversation), in the order of their blocks."""
        placed: list[Placed] = []
        joined, since = Joined(), place

        def flush() -> None:
            nonlocal joined
            if joined:
                message: Message = {"role": self._role, "content": joined.text}
                placed.append(Placed(message, since, self._index, joined.pieces))
                joined = Joined()

        for block in blocks:
            if block.value.get("type") == "tool_result" and self._role == "user":
                flush()
                placed.append(self._result(block))
            else:
                since = since if joined else block.place
                joined.add(*_text(block, self._foreign))
        flush()
        return placed or [Placed({"role": self._role, "content": ""}, f"{place}.content", self._index)]

    def _result(self, block: Block) -> Placed:
        call = text_of(block.value, "tool_use_id", block.place)
        name = self._calls.names.get(call)
        if name is None:
            why = f"got {shown(call)}, expected the id of a tool_use block of an earlier message"
            raise refuse(f"{block.place}.tool_use_id", why)
        content = block.value.get("content")
        joined = Joined()
        for part in [] if content is None else _blocks(content, f"{block.place}.content"):
            joined.add(*_text(part, self._foreign))
        message: Message = {"role": "tool", "tool_call_id": call, "name": name, "content": joined.text}
        if block.value.get("is_error") is True:  # only few templates look at the mark
            message["is_error"] = True
            message["content"] = joined.text or "The tool failed."
        return Placed(message, block.place, self._index, joined.pieces)

    def reply(self, blocks: Sequence[Block], place: str) -> Placed:
        texts, thoughts = Joined(), Joined()
        made: list[dict[str, Any]] = []
        paths: list[str] = []
        for block in blocks:
            kind = block.value.get("type")
            if kind == "thinking":
                thoughts.add(text_of(block.value, "thinking", block.place), f"{block.place}.thinking")
            elif kind == "tool_use":
                made.append(self._call(block))
                paths.append(block.place)
            elif kind != "redacted_thinking":  # nobody but its maker can read it
                texts.add(*_text(block, self._foreign))
        message: Message = {"role": "assistant", "content": texts.text}
        if made:
            message["tool_calls"] = made
        if reasoning := thoughts.text:
            message["reasoning_content"] = reasoning
        return Placed(message, f"{place}.content", self._index, texts.pieces, thoughts.pieces, paths)

    def _call(self, block: Block) -> dict[str, Any]:
        place, value = block.place, block.value
        call, name, arguments = text_of(value, "id", place), text_of(value, "name", place), value.get("input")
        if not isinstance(arguments, Mapping):
            raise refuse(f"{place}.input", f"got {got(arguments)}, expected an object")
        self._calls.names[call] = name
        return {"id": call, "type": "function", "function": {"name": name, "arguments": dict(arguments)}}


def _text(block: Block, foreign: Foreign) -> tuple[str, str, int | None]:
    """A block's text, its path, and 0; of a block that is no text what stands for it, the block's path, and ``None``."""
    kind = block.value.get("type")
    check_cache_control(block.value, block.place)
    if kind == "text":
        return text_of(block.value, "text", block.place), block.text, 0
    if kind in ("image", "document", "search_result", "container_upload"):
        why = f"got a block of type {shown(kind)}, expected text: this model reads text only"
        refusal = refuse(block.place, why)
    else:
        refusal = refuse(f"{block.place}.type", f"got {got(kind)}, expected a block that fits here, such as text")
    return foreign.text(block.value, refusal), block.place, None
