"""Tools of a response and those of the chat completion behind it.

::

    function                       as it is, in the nested shape
    namespace of functions         one function each, called "namespace__name"
    custom (free text)             a function with one text, "input"
    web_search, image_generation   left out: agents offer them always, and nothing here could run them
    anything else                  refused
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcache.dialects.foreign import Foreign
from agentcache.dialects.wording import refuse, shown

INPUT = "input"
"""The only argument of a custom tool."""
_LEFT_OUT = ("web_search", "image_generation", "tool_search")
_SERVED = '"function", "custom", or "namespace"'
_CHOICES = '"auto", "none", "required", or an object such as {"type": "function", "name": name of a tool}'


@dataclass(frozen=True)
class Known:
    """What a tool is called outside."""

    kind: str
    """``function`` or ``custom``."""
    name: str
    namespace: str | None = None


@dataclass
class Toolbox:
    """The tools of one request.

    Attributes:
        offered: those that are in force, as the client sent them.
        chat: the same as chat completions have them.
        paths: where in the body each of ``chat`` stands.
    """

    offered: list[dict[str, Any]] = field(default_factory=list)
    chat: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    _known: dict[str, Known] = field(default_factory=dict)

    def known(self, inner: str) -> Known:
        """What the model calls ``inner``; a name that no tool has is a function's."""
        return self._known.get(inner) or Known("function", inner)

    def add(self, tool: Mapping[str, Any], path: str, group: Mapping[str, Any] | None = None) -> None:
        """
        Raises:
            RequestError: naming the field.
        """
        kind, name = tool.get("type", "function"), tool.get("name")
        if kind not in ("function", "custom"):
            raise refuse(f"{path}.type", f'got {shown(kind)}, expected "function" or "custom"')
        if not isinstance(name, str) or not name:
            raise refuse(f"{path}.name", f"got {shown(name)}, expected text that is not empty")
        namespace = None if group is None else str(group["name"])
        inner = inner_name(name, namespace)
        if inner in self._known:
            raise refuse(f"{path}.name", f"got {shown(name)} twice, expected names that differ")
        self._known[inner] = Known(kind, name, namespace)
        self.take(_chat_tool(tool, inner, group), path)

    def take(self, tool: dict[str, Any], path: str) -> None:
        """A tool in the shape of chat completions."""
        self.chat.append(tool)
        self.paths.append(path)


def free_arguments(text: str) -> str:
    """Arguments that a custom tool is called with."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


def inner_name(name: str, namespace: str | None) -> str:
    """What the model calls a tool."""
    return name if namespace is None else f"{namespace}__{name}"


def read_tools(tools: Sequence[Mapping[str, Any]], foreign: Foreign) -> Toolbox:
    """
    Raises:
        RequestError: naming the tool that is not served, and why.
    """
    box = Toolbox()
    for i, tool in enumerate(tools):
        kind, path = tool.get("type", "function"), f"tools[{i}]"
        if isinstance(kind, str) and kind.startswith(_LEFT_OUT):
            continue
        if kind == "namespace":
            for k, inner in enumerate(_inside(tool, path)):
                box.add(inner, f"{path}.tools[{k}]", tool)
        elif kind in ("function", "custom"):
            box.add(tool, path)
        else:
            why = f"got {shown(kind)}, which this server cannot run, expected {_SERVED}"
            refusal = refuse(f"{path}.type", why, code="unsupported_value")
            box.take({"type": "function", "function": foreign.tool(tool, refusal)}, path)
        box.offered.append(dict(tool))
    return box


def _inside(group: Mapping[str, Any], path: str) -> Iterator[Mapping[str, Any]]:
    name, tools = group.get("name"), group.get("tools")
    if not isinstance(name, str) or not name:
        raise refuse(f"{path}.name", f"got {shown(name)}, expected text that is not empty")
    if not isinstance(tools, list):
        raise refuse(f"{path}.tools", f"got {shown(tools)}, expected a list of tool objects")
    for k, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise refuse(f"{path}.tools[{k}]", f"got {shown(tool)}, expected a tool object")
        yield tool


def _chat_tool(tool: Mapping[str, Any], inner: str, group: Mapping[str, Any] | None) -> dict[str, Any]:
    about = None if group is None else group.get("description")
    description = "\n".join(text for text in (about, tool.get("description")) if isinstance(text, str) and text)
    function: dict[str, Any] = {"name": inner}
    if description:
        function["description"] = description
    if tool.get("type") == "custom":
        function["parameters"] = _free_text(tool.get("format"))
    elif tool.get("parameters") is not None:
        function["parameters"] = tool["parameters"]
    if tool.get("strict"):
        function["strict"] = True
    return {"type": "function", "function": function}


def _free_text(format: object) -> dict[str, Any]:
    """Parameters of a custom tool; a grammar is told to the model, which is not held to it."""
    text: dict[str, Any] = {"type": "string"}
    if isinstance(format, Mapping) and format.get("type") == "grammar":
        text["description"] = f"Text of this grammar ({format.get('syntax')}):\n{format.get('definition')}"
    return {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}


def chat_choice(choice: object) -> object:
    """``tool_choice`` as chat completions spell it.

    Raises:
        RequestError: naming the field.
    """
    if not isinstance(choice, Mapping):
        return choice
    kind = choice.get("type")
    if kind in ("function", "custom"):
        return _named(choice, "tool_choice")
    if kind != "allowed_tools":
        raise refuse("tool_choice", f"got {shown(choice)}, expected {_CHOICES}")
    tools = choice.get("tools")
    if not isinstance(tools, list) or not tools:
        raise refuse("tool_choice.tools", f"got {shown(tools)}, expected a list of tools")
    named = [_named(tool, f"tool_choice.tools[{i}]") for i, tool in enumerate(tools)]
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": named}}


def _named(tool: object, path: str) -> dict[str, Any]:
    name = tool.get("name") if isinstance(tool, Mapping) else None
    if not isinstance(tool, Mapping) or not isinstance(name, str) or tool.get("type") not in ("function", "custom"):
        raise refuse(
            path, f'got {shown(tool)}, expected an object such as {{"type": "function", "name": name of a tool}}'
        )
    namespace = tool.get("namespace")
    inner = inner_name(name, namespace if isinstance(namespace, str) else None)
    return {"type": "function", "function": {"name": inner}}
