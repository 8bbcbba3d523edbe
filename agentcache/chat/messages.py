"""What clients send as messages, brought to one shape, or refused with the place and the reason.

The one shape: a list of dictionaries with ``role`` (one of ``ROLES``) and ``content`` (always a string), and where they
have a value ``name``, ``tool_call_id``, ``reasoning_content``, ``tool_calls`` and whatever else the client sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentcache.errors import ChatTemplateError

ROLES = ("system", "developer", "user", "assistant", "tool", "function")

Message = dict[str, Any]

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Type of a content part -> the key that holds its text."""
_REPLY_ONLY = frozenset({"refusal", "annotations", "audio", "function_call"})
"""Keys of a reply that say nothing to the model."""
_REASONING = ("reasoning_content", "thinking", "reasoning")
"""The names that a message's reasoning is sent under."""


def normalize_messages(messages: object) -> list[Message]:
    """Fresh dictionaries in the one shape; what was given is not changed.

    Content parts are joined as they are; missing and null content is the empty string; keys without a value are dropped.

    Raises:
        ChatTemplateError: naming the index, what was got and what was expected.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise _refuse("messages", f"got {_kind(messages)}, expected a list of messages")
    if not messages:
        raise _refuse("messages", "got an empty list, expected at least one message")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def normalize_tools(tools: object) -> list[dict[str, Any]] | None:
    """Tool schemas as plain dictionaries; none at all is ``None``.

    Raises:
        ChatTemplateError: naming the index, what was got and what was expected.
    """
    if tools is None:
        return None
    if not isinstance(tools, Sequence) or isinstance(tools, (str, bytes)):
        raise _refuse("tools", f"got {_kind(tools)}, expected a list of tool schemas")
    for i, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise _refuse(f"tools[{i}]", f"got {_kind(tool)}, expected a tool schema (an object)")
    return [dict(tool) for tool in tools] or None


def _message(message: object, path: str) -> Message:
    if not isinstance(message, Mapping):
        raise _refuse(path, f"got {_kind(message)}, expected an object with role and content")
    role = message.get("role")
    if role is None:
        raise _refuse(f"{path}.role", f"missing, expected one of {', '.join(ROLES)}")
    if not isinstance(role, str) or role not in ROLES:
        raise _refuse(f"{path}.role", f"got {role!r}, expected one of {', '.join(ROLES)}")
    known: Message = {"role": role, "content": _content(message.get("content"), f"{path}.content")}
    for key, value in message.items():
        if value is not None and key not in known and key not in _REPLY_ONLY:
            known[str(key)] = value
    for key in ("name", "tool_call_id"):
        if not isinstance(known.get(key, ""), str):
            raise _refuse(f"{path}.{key}", f"got {_kind(known[key])}, expected a string")
    known.pop("tool_calls", None)
    if calls := _tool_calls(message, path):
        known["tool_calls"] = calls
    for key in _REASONING:
        if isinstance(known.get(key), str):
            return {"thinking": known[key], **known, "reasoning_content": known[key]}
    return known


def _content(content: object, path: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise _refuse(path, f"got {_kind(content)}, expected a string, a list of text parts or null")
    return "".join(_part(part, f"{path}[{i}]") for i, part in enumerate(content))


def _part(part: object, path: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise _refuse(path, f"got {_kind(part)}, expected a part of type 'text'")
    kind = part.get("type", "text")
    if not isinstance(kind, str) or kind not in _TEXT_PARTS:
        raise _refuse(path, f"got a part of type {kind!r}, expected type 'text': this model reads text only")
    text = part.get(_TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise _refuse(f"{path}.{_TEXT_PARTS[kind]}", f"got {_kind(text)}, expected a string")
    return text


def _tool_calls(message: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    """Calls as ``{"type": "function", "function": {"name", "arguments"}}``, with ``id`` where there is one.

    ``function_call``, the older spelling of one call, becomes a call without an id.
    """
    calls = message.get("tool_calls")
    if calls is None and isinstance(message.get("function_call"), Mapping):
        return [_tool_call({"function": message["function_call"]}, f"{path}.function_call")]
    if calls is None:
        return []
    if not isinstance(calls, Sequence) or isinstance(calls, (str, bytes)):
        raise _refuse(f"{path}.tool_calls", f"got {_kind(calls)}, expected a list of tool calls")
    return [_tool_call(call, f"{path}.tool_calls[{i}]") for i, call in enumerate(calls)]


def _tool_call(call: object, path: str) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise _refuse(path, f"got {_kind(call)}, expected an object with id, type and function")
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise _refuse(f"{path}.function", f"got {_kind(function)}, expected an object with name and arguments")
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str):
        raise _refuse(f"{path}.function.name", f"got {_kind(name)}, expected a string")
    if arguments is not None and not isinstance(arguments, (str, Mapping)):
        raise _refuse(f"{path}.function.arguments", f"got {_kind(arguments)}, expected JSON text or an object")
    plain = {str(key): value for key, value in call.items() if value is not None}
    plain["type"] = "function"
    plain["function"] = {
        **{str(key): value for key, value in function.items() if value is not None},
        "name": name,
        "arguments": {} if arguments is None else arguments,
    }
    return plain


def _refuse(path: str, what: str) -> ChatTemplateError:
    return ChatTemplateError(f"{path}: {what}", path, "invalid_value")


def _kind(value: object) -> str:
    """JSON's own word for what was sent."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, (int, float)):
        return "a number"
    return "an object" if isinstance(value, Mapping) else "a list" if isinstance(value, Sequence) else repr(value)
