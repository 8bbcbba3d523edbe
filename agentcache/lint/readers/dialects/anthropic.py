"""Anthropic's messages, as the server's route translates them, and the way back to their blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.dialects.anthropic.blocks import Calls, Placed, chat_messages, system_message
from agentcache.dialects.anthropic.conversation import Conversation
from agentcache.dialects.anthropic.options import response_format, template_variables
from agentcache.dialects.anthropic.tools import chat_tools, choice_fields
from agentcache.dialects.joined import Piece, origin
from agentcache.lint.readers.dialects.body import Given, Translated, below
from agentcache.lint.readers.dialects.placeholders import Placeholders
from agentcache.lint.records import Keys, Place, path_of

PREFILL = "prefill"
"""Field of a record's body: the beginning of the reply, where the client wrote it.  The server renders the generation prompt
and puts these tokens behind it; control tokens that it spells are text."""
_READ = ("system", "messages", "tools", "tool_choice", "thinking", "output_config", "output_format", "cache_control")


def anthropic_request(given: Given) -> Translated:
    """
    Raises:
        RequestError: naming the place, as the server does.
    """
    foreign = Placeholders()
    system = given.value.get("system")
    head = system_message(system if isinstance(system, str) else given.objects("system"), foreign)
    tools = given.objects("tools")
    opened = Conversation([] if head is None else [head], chat_tools(tools, foreign))
    said = opened.followed_by(given.objects("messages") or (), foreign)
    variables = template_variables(given.object("thinking")) | dict(given.object("chat_template_kwargs") or {})
    form = response_format(given.object("output_config"), given.object("output_format"))
    body = {
        **{key: value for key, value in given.value.items() if key not in _READ},
        "messages": said.messages,
        **choice_fields(given.object("tool_choice")),
    }
    more = {"tools": said.tools, "chat_template_kwargs": variables, "response_format": form, PREFILL: said.prefill}
    body |= {key: value for key, value in more.items() if value}
    places = AnthropicPlaces(
        given.prefix, said.placed, said.prefill_pieces, frozenset(given.value), _own_schemas(tools)
    )
    return Translated("anthropic", body, places)


def reply_message(content: Any) -> dict[str, Any]:
    """A reply's content blocks as a message of a chat.

    Raises:
        RequestError: they are none.
    """
    (placed,) = chat_messages([{"role": "assistant", "content": content}], Calls(), Placeholders())
    return placed.message


def _own_schemas(tools: Sequence[Mapping[str, Any]] | None) -> tuple[bool, ...]:
    return tuple(tool.get("type") in (None, "custom") for tool in tools or ())


@dataclass(frozen=True, slots=True)
class AnthropicPlaces:
    """
    Attributes:
        placed: the messages, and where each stands.
        prefill: the strings that the beginning of the reply was joined of.
        fields: those of the body.
        own_schemas: for each tool, whether it is a client's own, with a schema.
    """

    prefix: str
    placed: Sequence[Placed]
    prefill: Sequence[Piece]
    fields: frozenset[str]
    own_schemas: Sequence[bool]

    def find(self, keys: Keys, char: int | None = None) -> Place:
        path, at = self._origin(keys, char)
        return Place(self.prefix + path, at)

    def _origin(self, keys: Keys, char: int | None) -> tuple[str, int | None]:
        match keys:
            case ("messages", int(index), *rest) if 0 <= index < len(self.placed):
                return _in_message(self.placed[index], tuple(rest), char)
            case ("tools", int(index), *rest) if 0 <= index < len(self.own_schemas):
                return _in_tool(index, tuple(rest), char, own=self.own_schemas[index])
            case ("prefill", *_):
                return origin(self.prefill, char) or ("messages", None)
            case ("response_format", *_):
                return ("output_config.format" if "output_config" in self.fields else "output_format"), None
            case ("chat_template_kwargs", *_) if "chat_template_kwargs" not in self.fields:
                return "thinking", None
            case ("parallel_tool_calls", *_):
                return "tool_choice.disable_parallel_tool_use", None
        return path_of(keys), char


def _in_message(placed: Placed, rest: Keys, char: int | None) -> tuple[str, int | None]:
    match rest:
        case ("content", *_):
            return origin(placed.content, char) or (placed.place, None)
        case ("reasoning_content" | "thinking" | "reasoning", *_):
            return origin(placed.reasoning, char) or (placed.place, None)
        case ("tool_calls", int(index), *inner) if 0 <= index < len(placed.calls):
            return _in_call(placed.calls[index], tuple(inner), char)
        case ("tool_call_id",):
            return f"{placed.place}.tool_use_id", char
        case ("role",) if placed.index is not None:
            return f"messages[{placed.index}].role", char
    return placed.place, None


def _in_call(path: str, rest: Keys, char: int | None) -> tuple[str, int | None]:
    match rest:
        case ("id",):
            return f"{path}.id", char
        case ("function", "name"):
            return f"{path}.name", char
        case ("function", "arguments", *inner):
            return below(f"{path}.input", tuple(inner)), char
    return path, None


def _in_tool(index: int, rest: Keys, char: int | None, *, own: bool) -> tuple[str, int | None]:
    path = f"tools[{index}]"
    match rest:
        case ("function", "parameters", *inner):
            return below(f"{path}.input_schema" if own else path, tuple(inner)), char
        case ("function", "description") if not own:
            return f"{path}.type", char
        case ("function", str(key)):
            return f"{path}.{key}", char
    return path, None
