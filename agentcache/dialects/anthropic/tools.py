"""Tools, and what a request wants of calls, in the words of chat completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentcache.dialects.anthropic.checks import check_cache_control, text_of
from agentcache.dialects.foreign import Foreign
from agentcache.dialects.wording import got, refuse, shown
from agentcache.errors import RequestError

Tool = dict[str, Any]

_RUN_BY_ANTHROPIC = ("web_search_", "web_fetch_", "code_execution_", "tool_search_", "advisor_", "mcp_toolset")
"""Beginnings of the types of tools that Anthropic's servers run."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_tools(tools: Sequence[Mapping[str, Any]] | None, foreign: Foreign) -> list[Tool] | None:
    """Function tools, with what a model is told of them and nothing else.

    Raises:
        RequestError: naming the tool and the field.
    """
    if not tools:
        return None
    names: dict[str, int] = {}
    translated = []
    for i, tool in enumerate(tools):
        place = f"tools[{i}]"
        translated.append(_tool(tool, place, foreign))
        name = translated[-1]["function"]["name"]
        if name in names:
            raise refuse(
                f"{place}.name", f"got {shown(name)}, which tools[{names[name]}] has, expected names that differ"
            )
        names[name] = i
    return translated


def _tool(tool: Mapping[str, Any], place: str, foreign: Foreign) -> Tool:
    kind = tool.get("type")
    if kind not in (None, "custom"):
        return {"type": "function", "function": foreign.tool(tool, _refused_kind(kind, place))}
    check_cache_control(tool, place)
    name, schema = text_of(tool, "name", place), tool.get("input_schema")
    if not name:
        raise refuse(f"{place}.name", 'got "", expected a name')
    if not isinstance(schema, Mapping):
        raise refuse(f"{place}.input_schema", f"got {got(schema)}, expected a JSON schema")
    function: dict[str, Any] = {"name": name}
    if tool.get("description") is not None:
        function["description"] = text_of(tool, "description", place)
    function["parameters"] = dict(schema)
    if tool.get("strict") is True:
        function["strict"] = True
    return {"type": "function", "function": function}


def _refused_kind(kind: object, place: str) -> RequestError:
    if isinstance(kind, str) and kind.startswith(_RUN_BY_ANTHROPIC):
        why = "which runs on Anthropic's own servers"
    else:
        why = "whose schema only Anthropic's own models know"
    expected = 'expected "custom": give the tool a name and an input_schema, and run it in the client'
    return refuse(f"{place}.type", f"got {shown(kind)}, {why}; {expected}", code="unsupported_value")


def choice_fields(choice: Mapping[str, Any] | None) -> dict[str, Any]:
    """``tool_choice`` and ``parallel_tool_calls`` of chat completions.

    Raises:
        RequestError: naming the field.
    """
    if choice is None:
        return {}
    kind, parallel = choice.get("type"), choice.get("disable_parallel_tool_use")
    if parallel is not None and not isinstance(parallel, bool):
        raise refuse("tool_choice.disable_parallel_tool_use", f"got {shown(parallel)}, expected true or false")
    if kind == "tool":
        asked: Any = {"type": "function", "function": {"name": text_of(choice, "name", "tool_choice")}}
    elif isinstance(kind, str) and kind in _CHOICES:
        asked = _CHOICES[kind]
    else:
        raise refuse("tool_choice.type", f"got {got(kind)}, expected auto, any, tool or none")
    return {"tool_choice": asked, **({"parallel_tool_calls": False} if parallel else {})}
