"""How a chat template writes tool calls, found out by letting it write some."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentcache.chat.template import ChatTemplate
from agentcache.errors import ChatTemplateError

NAME = "probe_tool"
_VALUE = "probed value"
_IDS = ("probe0001", "probe0002")
"""Nine letters and digits: a shape that no template refuses."""
_USER = {"role": "user", "content": "probe"}
_TOOL = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "probe",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    },
}
CALL_JSON = re.compile(
    rf'\{{\s*"name":\s*"{NAME}",\s*"(?P<key>arguments|parameters)":\s*\{{"key":\s*"{_VALUE}"\}}(?P<rest>[^{{}}]*)\}}'
)
"""A call that is written as a JSON object."""


@dataclass(frozen=True)
class TemplateProbe:
    """What one chat template writes.

    Args:
        source: Jinja; empty for a model without a template.
    """

    source: str

    @cached_property
    def knows_tools(self) -> bool:
        """Whether tools reach the prompt.  Where they do not, they are described in a block of text instead."""
        system = {"role": "system", "content": "probe"}
        return any(NAME in self._try(messages) for messages in ([_USER], [system, _USER]))

    @cached_property
    def one_call(self) -> str:
        """A conversation with one call, as text; empty where the template does not write it."""
        return self._rendered(1)

    @cached_property
    def two_calls(self) -> str:
        """The same with two calls in one message; empty where the template allows one only."""
        return self._rendered(2)

    @cached_property
    def _template(self) -> ChatTemplate | None:
        try:
            return ChatTemplate(self.source) if self.source else None
        except ChatTemplateError:
            return None

    def _rendered(self, count: int) -> str:
        for arguments in ({"key": _VALUE}, json.dumps({"key": _VALUE})):
            calls = [
                {"id": call_id, "type": "function", "function": {"name": NAME, "arguments": arguments}}
                for call_id in _IDS[:count]
            ]
            results: list[dict[str, Any]] = [
                {"role": "tool", "tool_call_id": call_id, "name": NAME, "content": "probe"} for call_id in _IDS[:count]
            ]
            assistant: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": calls}
            for messages in ([_USER, assistant, *results], [_USER, assistant]):
                text = self._try(messages)
                if text.count(_VALUE) >= count and '\\"key\\"' not in text:
                    return text
        return ""

    def _try(self, messages: list[dict[str, Any]]) -> str:
        if self._template is None:
            return ""
        named = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "")
        variables = named | {"messages": messages, "tools": [_TOOL], "add_generation_prompt": True, "documents": None}
        try:
            return self._template.render(variables)
        except ChatTemplateError:
            return ""
