"""What the tests of the Messages API share."""

from __future__ import annotations

from typing import Any

MODEL = "smollm2"
TOOL: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather in a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
FORCED = {"type": "tool", "name": "get_weather"}
GREEDY = {"temperature": 0}
"""In ``extra_body``: the package has no such parameter any more."""


def prompt_tokens(usage: Any) -> int:
    """The three kinds of input together."""
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


def results(content: Any, text: str = "sunny, 20 degrees") -> dict[str, Any]:
    """A user's message with a result for each call in ``content``."""
    calls = [block for block in content if block.type == "tool_use"]
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call in calls],
    }
