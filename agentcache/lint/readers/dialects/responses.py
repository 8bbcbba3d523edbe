"""OpenAI's responses, as the server's route translates them, and the way back to their items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.dialects.joined import origin
from agentcache.dialects.responses.items import ItemNotFoundError, Turn, read_input
from agentcache.dialects.responses.places import Place as ItemPlace
from agentcache.dialects.responses.tools import chat_choice, read_tools
from agentcache.dialects.wording import got, refuse, shown
from agentcache.lint.readers.dialects.body import Given, Translated, below
from agentcache.lint.readers.dialects.chain import ResponseChain
from agentcache.lint.readers.dialects.placeholders import Placeholders
from agentcache.lint.records import Keys, Place, path_of

_PREVIOUS = "previous_response_id"
_READ = ("input", "instructions", _PREVIOUS, "tools", "tool_choice", "text", "conversation", "prompt")
_UNTOLD = (
    "which is no answer of an earlier record: record answers beside their requests, or send the whole conversation"
)


def responses_request(given: Given, chain: ResponseChain) -> Translated:
    """
    Args:
        chain: what earlier requests of the file were answered.

    Raises:
        RequestError: naming the place, as the server does.
    """
    _check_served(given)
    toolbox = read_tools(given.objects("tools") or (), Placeholders())
    previous, instructions = given.text(_PREVIOUS), given.text("instructions")
    before = chain.messages(previous) if previous else []
    if before is None:
        raise refuse(_PREVIOUS, f"got {shown(previous)}, {_UNTOLD}")
    turn = _turn(given, chain)
    head = [{"role": "system", "content": instructions}] if instructions else []
    messages = [*head, *before, *turn.messages]
    if not messages:
        raise refuse("input", "got no items, expected at least one")
    places = [ItemPlace("instructions")] * len(head) + [ItemPlace(_PREVIOUS)] * len(before) + turn.places
    body = {key: value for key, value in given.value.items() if key not in _READ} | {"messages": messages}
    more = {"tools": toolbox.chat, "tool_choice": chat_choice(given.value.get("tool_choice"))}
    body |= {key: value for key, value in (more | {"response_format": _format(given)}).items() if value}
    found = ResponsePlaces(given.prefix, places, toolbox.paths, given.value)
    return Translated("responses", body, found, said=turn.messages, items=turn.items)


def _check_served(given: Given) -> None:
    for name, instead in (("conversation", "the whole conversation as input"), ("prompt", "instructions and input")):
        if (value := given.value.get(name)) is not None:
            raise refuse(name, f"got {shown(value)}, which only its provider can read, expected {instead}")
    value = given.value.get("input")
    if value is not None and not isinstance(value, (str, list)):
        raise refuse("input", f"got {got(value)}, expected text, or a list of input items")


def _turn(given: Given, chain: ResponseChain) -> Turn:
    try:
        return read_input(given.value.get("input"), chain.item, Placeholders())
    except ItemNotFoundError as error:
        raise refuse(str(error.param), f"got a reference to an item {_UNTOLD}") from error


def _format(given: Given) -> Mapping[str, Any] | None:
    asked = (given.object("text") or {}).get("format")
    if not isinstance(asked, Mapping) or asked.get("type") != "json_schema":
        return asked if isinstance(asked, Mapping) else None
    return {"type": "json_schema", "json_schema": {key: value for key, value in asked.items() if key != "type"}}


@dataclass(frozen=True, slots=True)
class ResponsePlaces:
    """
    Attributes:
        messages: where each stands in the body.
        tools: path of each.
        body: as it was sent.
    """

    prefix: str
    messages: Sequence[ItemPlace]
    tools: Sequence[str]
    body: Mapping[str, Any]

    def find(self, keys: Keys, char: int | None = None) -> Place:
        path, at = self._origin(keys, char)
        return Place(self.prefix + path, at)

    def _origin(self, keys: Keys, char: int | None) -> tuple[str, int | None]:
        match keys:
            case ("messages", int(index), *rest) if 0 <= index < len(self.messages):
                return _in_message(self.messages[index], tuple(rest), char)
            case ("messages", *_):
                return "input", None
            case ("tools", int(index), *rest) if 0 <= index < len(self.tools):
                return self._in_tool(self.tools[index], tuple(rest), char)
            case ("response_format", *_):
                return "text.format", None
        return path_of(keys), char

    def _in_tool(self, path: str, rest: Keys, char: int | None) -> tuple[str, int | None]:
        grouped = path.count("[") > 1  # a namespace's description stands before its tools'
        match rest:
            case ("function", "parameters", *inner) if self._has_parameters(path):
                return below(f"{path}.parameters", tuple(inner)), char
            case ("function", "description"):
                return f"{path}.description", None if grouped else char
            case ("function", "name"):
                return f"{path}.name", None if grouped else char
        return path, None

    def _has_parameters(self, path: str) -> bool:
        tool: Any = self.body
        for step in path.replace("]", "").replace("[", ".").split("."):
            tool = tool[int(step)] if step.isdigit() else tool[step]
        return isinstance(tool.get("parameters"), Mapping)


def _in_message(place: ItemPlace, rest: Keys, char: int | None) -> tuple[str, int | None]:
    if place.path == "instructions":
        return place.path, char if rest[:1] == ("content",) else None
    match rest:
        case ("content" | "reasoning_content" as part, *_):
            return origin(place.pieces.get(str(part), ()), char) or (place.path, None)
        case ("thinking" | "reasoning", *_):
            return origin(place.pieces.get("reasoning_content", ()), char) or (place.path, None)
        case ("tool_calls", int(index), *inner):
            return _in_call(place.parts.get(f"tool_calls[{index}]", place.path), tuple(inner), char)
        case ("tool_call_id",) if place.parts:
            return f"{place.path}.call_id", char
    return place.path, None


def _in_call(path: str, rest: Keys, char: int | None) -> tuple[str, int | None]:
    """
    Args:
        path: of the call's ``arguments`` or ``input``; or of an item that holds neither.
    """
    item, _, field = path.rpartition(".")
    if not item:
        return path, None
    match rest:
        case ("function", "arguments", *_):
            return path, char if field == "arguments" else None
        case ("function", "name"):
            return f"{item}.name", None
        case ("id",):
            return f"{item}.call_id", char
    return item, None
