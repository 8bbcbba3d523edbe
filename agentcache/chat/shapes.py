"""Fits messages to what one chat template can take.

Templates differ in what they know: tools, tool calls, the roles ``tool``, ``function`` and ``developer``, arguments as an
object or as text.  What a template knows is found out by rendering small conversations and looking for a word of theirs in
the text: a template that drops something, or stumbles over it, does not know it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentcache.chat import tool_text
from agentcache.chat.messages import Message
from agentcache.chat.template import ChatTemplate
from agentcache.errors import ChatTemplateError

_WORD = "zqprobe"
_VALUE = "zqvalue"
_ID = "zq1234567"  # nine letters and digits: some templates refuse anything else
_USER: Message = {"role": "user", "content": "hello"}
_RESULT: Message = {"role": "tool", "tool_call_id": _ID, "name": _WORD, "content": "done"}


@dataclass(frozen=True)
class CallShape:
    """How a template wants the message that calls a tool."""

    empty_content: str | None
    """What stands for no text beside the calls: some templates ask whether content is none."""
    arguments_as_text: bool


_CALL_SHAPES = (
    CallShape(None, arguments_as_text=False),
    CallShape("", arguments_as_text=False),
    CallShape(None, arguments_as_text=True),
    CallShape("", arguments_as_text=True),
)


class TemplateShapes:
    """What ``template`` knows, and messages fitted to that.

    Args:
        variables: what every rendering gets beside messages and tools (``bos_token`` ...).
    """

    def __init__(self, template: ChatTemplate, variables: Mapping[str, Any]) -> None:
        self._template = template
        self._variables = dict(variables)

    def fit(
        self, messages: Sequence[Message], tools: list[dict[str, Any]] | None
    ) -> tuple[list[Message], list[dict[str, Any]] | None]:
        """Messages and tools to render.  Message by message, so that a longer history begins like a shorter one."""
        fitted: list[Message] = []
        for message in messages:
            told = tool_text.announced(message)
            if told is not None:
                message = {key: value for key, value in message.items() if key != tool_text.ANNOUNCED}
            self._append(fitted, message)
            if told is not None:
                self._announce(fitted, told)
        for message in fitted:
            message.pop(_MERGEABLE, None)
        if tools and not self.knows_tools:
            return self._with_block(fitted, tool_text.tools_block(tools)), None
        if tools and not self.takes_bare_tools:
            tools = [_filled(tool) for tool in tools]
        return fitted, tools

    def ends_with_result(self, message: Message) -> bool:
        """Whether what ``message`` is rendered as ends with a tool's result, and not with a user's words."""
        spoken = tool_text.announced(message) is not None and self.takes_question_behind_result
        return message.get("role") in ("tool", "function") and not spoken

    # -- what the template knows

    @cached_property
    def knows_tools(self) -> bool:
        """Whether tool schemas reach the prompt."""
        return self._shows_tool(_tool(_WORD))

    @cached_property
    def takes_bare_tools(self) -> bool:
        """Whether a tool may have a name and nothing else: some templates stumble where it has no description."""
        return self._shows_tool({"type": "function", "function": {"name": _WORD}})

    def _shows_tool(self, tool: dict[str, Any]) -> bool:
        system: Message = {"role": "system", "content": "hello"}
        return any(self._shows([_WORD], messages, [tool]) for messages in ([_USER], [system, _USER]))

    @cached_property
    def knows_system(self) -> bool:
        """Whether a system message reaches the prompt."""
        return self._shows([_WORD], [{"role": "system", "content": _WORD}, _USER])

    @cached_property
    def knows_developer(self) -> bool:
        """Whether the template itself has a developer role."""
        developer: Message = {"role": "developer", "content": _WORD}
        return self._template.mentions("developer") and self._shows([_WORD], [developer, _USER])

    @cached_property
    def call_shape(self) -> CallShape | None:
        """How tool calls must look to reach the prompt, their arguments included; ``None``: they never do."""
        for shape in _CALL_SHAPES:
            call = self._fit_call(_call_message(_WORD, _VALUE), shape)
            for messages in ([_USER, call, _RESULT], [_USER, call]):
                if self._shows_with_or_without_tools([_WORD, _VALUE], messages):
                    return shape
        return None

    @cached_property
    def takes_broken_arguments(self) -> bool:
        """Whether arguments that are no JSON reach the prompt: a call that was cut comes back in the next request."""
        call = _call_message(_WORD, _VALUE)
        (made,) = call["tool_calls"]
        made |= {_PROBING: True, "function": {"name": _WORD, "arguments": _VALUE}}
        shape = self.call_shape
        if shape is None:
            return True
        return self._shows_with_or_without_tools([_WORD, _VALUE], [_USER, self._fit_call(call, shape), _RESULT])

    @cached_property
    def knows_tool_role(self) -> bool:
        """Whether messages of role ``tool`` reach the prompt."""
        return self._shows_result("tool")

    @cached_property
    def knows_function_role(self) -> bool:
        """Whether messages of role ``function`` (the older name of ``tool``) reach the prompt."""
        return self._shows_result("function")

    @cached_property
    def takes_question_behind_result(self) -> bool:
        """Whether a user may speak right behind a tool's result, and nothing before is written in another way for it.

        Some templates want the model to answer a result first, or move the tools to the last thing that a user said.
        """
        call = self._with_calls(_call_message("probe", "value"))
        asked = [_USER, call, {**_RESULT, "name": "probe", "content": _VALUE}]
        taken = False
        for tools in (None, [_tool("probe")]):
            before = self._text(asked, tools, add_generation_prompt=False)
            if before is not None:
                text = self._text([*asked, {"role": "user", "content": _WORD}], tools, add_generation_prompt=False)
                taken = text is not None and text.startswith(before) and _VALUE in text and _WORD in text
                if not taken:
                    return False
        return taken

    def _shows_result(self, role: str) -> bool:
        call = self._with_calls(_call_message("probe", "value"))
        result = {**_RESULT, "role": role, "name": "probe", "content": _WORD}
        return self._shows_with_or_without_tools([_WORD], [_USER, call, result])

    def _shows_with_or_without_tools(self, words: Sequence[str], messages: list[Message]) -> bool:
        return any(self._shows(words, messages, tools) for tools in (None, [_tool("probe")]))

    def _shows(self, words: Sequence[str], messages: list[Message], tools: list[dict[str, Any]] | None = None) -> bool:
        """Whether the template renders ``messages`` with all ``words`` in the text, and no stray ``None``."""
        text = self._text(messages, tools)
        if text is None:
            return False
        return all(word in text for word in words) and ("None" not in text or self._template.mentions_part("None"))

    def _text(
        self, messages: list[Message], tools: list[dict[str, Any]] | None, *, add_generation_prompt: bool = True
    ) -> str | None:
        """What the template makes of ``messages``; ``None`` where it refuses them."""
        given = {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        try:
            return self._template.render({**self._variables, **given})
        except ChatTemplateError:
            return None

    # -- fitting

    def _append(self, fitted: list[Message], message: Message) -> None:
        role = message["role"]
        if role == "assistant" and "tool_calls" in message:
            message = self._with_calls(message)
        elif role == "developer" and not self.knows_developer:
            message = {**message, "role": "system"}
        elif role in ("tool", "function"):
            message = self._result(message)
            if message["role"] == "user" and fitted and fitted[-1].get(_MERGEABLE):
                fitted[-1]["content"] += "\n" + message["content"]
                return
        fitted.append(message)

    def _announce(self, fitted: list[Message], told: str) -> None:
        """``told`` before the words of a user, or behind what is no user's."""
        last = fitted[-1]
        role, content = last["role"], last["content"]
        if last.get(_MERGEABLE) or (role in ("tool", "function") and not self.takes_question_behind_result):
            fitted[-1] = {**last, "content": tool_text.with_block(content, told)}
        elif role == "user":
            fitted[-1] = {**last, "content": tool_text.with_block(told, content) if content else told}
        else:
            fitted.append({"role": "user", "content": told})

    def _with_calls(self, message: Message) -> Message:
        if self.call_shape is not None:
            return self._fit_call(message, self.call_shape)
        plain = {key: value for key, value in message.items() if key != "tool_calls"}
        return {**plain, "content": tool_text.with_calls(message["content"], message["tool_calls"])}

    def _fit_call(self, message: Message, shape: CallShape) -> Message:
        calls = [
            {**call, "function": {**call["function"], "arguments": self._arguments(call, shape)}}
            for call in message["tool_calls"]
        ]
        return {**message, "content": message["content"] or shape.empty_content, "tool_calls": calls}

    def _arguments(self, call: Mapping[str, Any], shape: CallShape) -> Any:
        """Those of ``call`` as the template wants them; what is no JSON object (it was cut) as it is, where that can be."""
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):
            told = _parsed(arguments)
            if told is None and call.get(_PROBING) is None and not self.takes_broken_arguments:
                told = {"arguments": arguments}
                arguments = json.dumps(told, ensure_ascii=False)
        else:
            told = dict(arguments)
        if shape.arguments_as_text:
            return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return arguments if told is None else told

    def _result(self, message: Message) -> Message:
        if message["role"] == "function" and self.knows_function_role:
            return message
        if self.knows_tool_role:
            return {**message, "role": "tool"}
        return {"role": "user", "content": tool_text.result_text(message["content"]), _MERGEABLE: True}

    def _with_block(self, messages: list[Message], block: str) -> list[Message]:
        first = messages[0]
        if first["role"] in ("system", "developer"):
            return [{**first, "content": tool_text.with_block(first["content"], block)}, *messages[1:]]
        if self.knows_system:
            return [{"role": "system", "content": block}, *messages]
        if first["role"] == "user":
            return [{**first, "content": f"{block}\n\n{first['content']}"}, *messages[1:]]
        return [{"role": "user", "content": block}, *messages]


_PROBING = "agentcache_probing"
"""Marks a call whose arguments are to be tried as they are."""
_MERGEABLE = "agentcache_tool_results"
"""Marks, while fitting, a user message made of tool results, which the next result may join."""


def _call_message(name: str, value: str) -> Message:
    call = {"id": _ID, "type": "function", "function": {"name": name, "arguments": {"path": value}}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _tool(name: str) -> dict[str, Any]:
    path = {"type": "string", "description": "probe"}
    parameters = {"type": "object", "properties": {"path": path}, "required": ["path"]}
    return {"type": "function", "function": {"name": name, "description": "probe", "parameters": parameters}}


def _filled(tool: dict[str, Any]) -> dict[str, Any]:
    """``tool`` with a description and parameters, both of which clients may leave out."""
    function = tool.get("function")
    inside = function if isinstance(function, Mapping) else tool
    told = {key: value for key, value in inside.items() if value is not None or key not in _OPTIONAL}
    filled = {**told, **{key: value for key, value in _OPTIONAL.items() if key not in told}}
    return filled if inside is tool else {**tool, "function": filled}


_OPTIONAL: Mapping[str, Any] = {"description": "", "parameters": {"type": "object", "properties": {}}}


def _parsed(arguments: str) -> dict[str, Any] | None:
    """The object that ``arguments`` are; ``None`` for what is no JSON object."""
    if not arguments.strip():
        return {}
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None
