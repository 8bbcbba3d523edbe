"""What a request lets a reply call: ``tools``, ``tool_choice`` and ``parallel_tool_calls``, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentcache.chat.replies.base import CallChoice
from agentcache.dialects.wording import shown
from agentcache.server.bodies import ChatBody
from agentcache.server.errors import bad_field

Tool = Mapping[str, Any]

_EXPECTED = '"auto", "none", "required", or {"type": "function", "function": {"name": name of a tool}}'


def check_tools(tools: Sequence[Tool]) -> list[str]:
    """Names of function tools, in order.

    Raises:
        ApiError: 400, naming the tool that is no function or has no name, or a name that two tools have.
    """
    names: list[str] = []
    for i, tool in enumerate(tools):
        if tool.get("type", "function") != "function":
            raise bad_field(f"tools[{i}].type", f'got {shown(tool["type"])}, expected "function"')
        function = tool.get("function")
        if not isinstance(function, Mapping):
            raise bad_field(
                f"tools[{i}].function", f"got {shown(function)}, expected an object with name and parameters"
            )
        name, parameters = function.get("name"), function.get("parameters")
        if not isinstance(name, str) or not name:
            raise bad_field(f"tools[{i}].function.name", f"got {shown(name)}, expected text that is not empty")
        if parameters is not None and not isinstance(parameters, Mapping):
            raise bad_field(f"tools[{i}].function.parameters", f"got {shown(parameters)}, expected a JSON schema")
        if name in names:
            raise bad_field(f"tools[{i}].function.name", f"got {shown(name)} twice, expected names that differ")
        names.append(name)
    return names


def call_choice(body: ChatBody, tools: Sequence[Tool] | None) -> CallChoice | None:
    """What calls the reply may hold; ``None`` where none are looked for.

    Args:
        tools: those of the request, or of its session.

    Raises:
        ApiError: 400, naming what is wrong.
    """
    names = check_tools(tools or ())
    mode, allowed = _mode(body.tool_choice, names)
    if not names and mode == "required":
        raise bad_field("tool_choice", f"got {shown(body.tool_choice)} without tools, expected tools to choose from")
    if not names or mode == "none":
        return None
    single = isinstance(body.tool_choice, Mapping) and body.tool_choice.get("type", "function") == "function"
    parallel = body.parallel_tool_calls is not False and not single
    return CallChoice(tuple(allowed), required=mode == "required", parallel=parallel)


def _mode(choice: str | Mapping[str, Any] | None, names: list[str]) -> tuple[str, list[str]]:
    """``auto``, ``none`` or ``required``, and of which tools."""
    if choice is None or choice in ("auto", "none", "required"):
        return str(choice or "auto"), names
    if not isinstance(choice, Mapping):
        raise bad_field("tool_choice", f"got {shown(choice)}, expected {_EXPECTED}")
    kind = choice.get("type", "function")
    if kind == "allowed_tools":
        return _allowed(choice, names)
    if kind != "function":
        raise bad_field("tool_choice", f"got {shown(choice)}, expected {_EXPECTED}")
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
    return "required", [_known(name, names, "tool_choice")]


def _allowed(choice: Mapping[str, Any], names: list[str]) -> tuple[str, list[str]]:
    inner = choice.get("allowed_tools", choice)
    mode = inner.get("mode", "auto") if isinstance(inner, Mapping) else None
    tools = inner.get("tools") if isinstance(inner, Mapping) else None
    if mode not in ("auto", "required") or not isinstance(tools, list) or not tools:
        raise bad_field(
            "tool_choice",
            f'got {shown(choice)}, expected allowed_tools with mode "auto" or "required" and a list of tools',
        )
    picked = []
    for tool in tools:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        name = (
            function.get("name")
            if isinstance(function, Mapping)
            else tool.get("name")
            if isinstance(tool, Mapping)
            else None
        )
        picked.append(_known(name, names, "tool_choice"))
    return mode, list(dict.fromkeys(picked))


def _known(name: object, names: list[str], field: str) -> str:
    if not isinstance(name, str) or name not in names:
        raise bad_field(field, f"got the tool {shown(name)}, expected one of tools: {', '.join(names[:20]) or 'none'}")
    return name
