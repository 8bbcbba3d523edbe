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
from typing import Any

from agentcache.chat.messages import Message
from agentcache.server.anthropic.checks import check_cache_control, refuse, text_of
from agentcache.server.errors import shown

_ATTRIBUTION = re.compile(r"\s*x-anthropic-billing-header:[^\n]*\n?")
"""Claude Code tells Anthropic's accounting in a block of the system text which build sends a request, and adds a checksum of
the request.  It is no instruction, and as it differs in every request nothing behind it could ever be read from the cache."""
_ROLES = ("user", "assistant", "system")


@dataclass(frozen=True)
class Placed:
    """A chat message, and the place in the body that it was made of."""

    message: Message
    place: str
    index: int | None
    """Of the message in the body; ``None`` for the system text."""


@dataclass
class Calls:
    """Ids of the calls so far, and the names of what was called."""

    names: dict[str, str] = field(default_factory=dict)


def system_text(system: str | Sequence[Mapping[str, Any]] | None) -> str:
    """The system text, without what is meant for Anthropic's accounting.

    Raises:
        ApiError: 400 for a block that is no text.
    """
    if system is None or isinstance(system, str):
        texts = [system or ""]
    else:
        texts = [_text_block(block, f"system[{i}]") for i, block in enumerate(system)]
    return "".join(text[_header(text) :] for text in texts)


def _header(text: str) -> int:
    found = _ATTRIBUTION.match(text)
    return 0 if found is None else found.end()


def chat_messages(messages: Sequence[Mapping[str, Any]], calls: Calls) -> list[Placed]:
    """
    Args:
        calls: made earlier in the conversation; those of ``messages`` are added.

    Raises:
        ApiError: 400, naming the message, block and field.
    """
    placed: list[Placed] = []
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        role = message.get("role")
        if role not in _ROLES:
            got = "nothing" if role is None else shown(role)
            raise refuse(f"{place}.role", f"got {got}, expected user, assistant or system")
        check_cache_control(message, place)
        blocks = _blocks(message.get("content"), f"{place}.content")
        if role == "assistant":
            placed.append(Placed(_assistant(blocks, calls), f"{place}.content", index))
        else:
            placed += [Placed(said, at, index) for said, at in _said(str(role), blocks, calls, f"{place}.content")]
    return placed


Block = tuple[str, Mapping[str, Any]]
"""A content block with its place."""


def _blocks(content: object, place: str) -> list[Block]:
    if isinstance(content, str):
        return [(place, {"type": "text", "text": content})]
    if not isinstance(content, list):
        got = "nothing" if content is None else shown(content)
        raise refuse(place, f"got {got}, expected text or a list of content blocks")
    blocks: list[Block] = []
    for i, block in enumerate(content):
        at = f"{place}[{i}]"
        if isinstance(block, str):
            block = {"type": "text", "text": block}
        if not isinstance(block, Mapping):
            raise refuse(at, f"got {shown(block)}, expected a content block (an object with a type)")
        check_cache_control(block, at)
        blocks.append((at, block))
    return blocks


def _said(role: str, blocks: Sequence[Block], calls: Calls, place: str) -> list[tuple[Message, str]]:
    """Messages of a user (or of the system, in the middle of a conversation), in the order of their blocks."""
    messages: list[tuple[Message, str]] = []
    texts: list[str] = []
    since = place

    def flush() -> None:
        if texts:
            messages.append(({"role": role, "content": "".join(texts)}, since))
            texts.clear()

    for at, block in blocks:
        if block.get("type") == "tool_result" and role == "user":
            flush()
            messages.append((_result(at, block, calls), at))
        else:
            since = since if texts else at
            texts.append(_text_block(block, at))
    flush()
    return messages or [({"role": role, "content": ""}, place)]


def _result(place: str, block: Mapping[str, Any], calls: Calls) -> Message:
    call = text_of(block, "tool_use_id", place)
    name = calls.names.get(call)
    if name is None:
        raise refuse(
            f"{place}.tool_use_id", f"got {shown(call)}, expected the id of a tool_use block of an earlier message"
        )
    content = block.get("content")
    inner = [] if content is None else _blocks(content, f"{place}.content")
    text = "".join(_text_block(part, at) for at, part in inner)
    message: Message = {"role": "tool", "tool_call_id": call, "name": name, "content": text}
    if block.get("is_error") is True:  # only few templates look at the mark
        message["is_error"] = True
        message["content"] = text or "The tool failed."
    return message


def _assistant(blocks: Sequence[Block], calls: Calls) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    made: list[dict[str, Any]] = []
    for place, block in blocks:
        kind = block.get("type")
        if kind == "thinking":
            thoughts.append(text_of(block, "thinking", place))
        elif kind == "tool_use":
            made.append(_call(place, block, calls))
        elif kind != "redacted_thinking":  # nobody but its maker can read it
            texts.append(_text_block(block, place))
    message: Message = {"role": "assistant", "content": "".join(texts)}
    if made:
        message["tool_calls"] = made
    if reasoning := "".join(thoughts):
        message["reasoning_content"] = reasoning
    return message


def _call(place: str, block: Mapping[str, Any], calls: Calls) -> dict[str, Any]:
    call, name, arguments = text_of(block, "id", place), text_of(block, "name", place), block.get("input")
    if not isinstance(arguments, Mapping):
        got = "nothing" if arguments is None else shown(arguments)
        raise refuse(f"{place}.input", f"got {got}, expected an object")
    calls.names[call] = name
    return {"id": call, "type": "function", "function": {"name": name, "arguments": dict(arguments)}}


def _text_block(block: Mapping[str, Any], place: str) -> str:
    kind = block.get("type")
    check_cache_control(block, place)
    if kind == "text":
        return text_of(block, "text", place)
    if kind in ("image", "document", "search_result", "container_upload"):
        raise refuse(place, f"got a block of type {shown(kind)}, expected text: this model reads text only")
    raise refuse(
        f"{place}.type",
        f"got {'nothing' if kind is None else shown(kind)}, expected a block that fits here, such as text",
    )
