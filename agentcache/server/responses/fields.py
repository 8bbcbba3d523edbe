"""Fields of chat completions under the names that a response has for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.dialects.responses.places import Place
from agentcache.errors import RequestError
from agentcache.server.errors import ApiError

_NAMES = {
    "messages": "input",
    "prompt": "input",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "logprobs": "include",
}
"""The longer of two names that begin alike stands first."""
_INDEXED = re.compile(r"(messages|tools)\[(\d+)\](.*)", re.DOTALL)


@dataclass(frozen=True)
class Fields:
    """Where messages and tools stand in the body.

    Args:
        tools: a path for each tool.
    """

    messages: Sequence[Place] = ()
    tools: Sequence[str] = ()

    def named(self, field: str) -> str:
        """The response's name of a field of a chat completion, or of a part of one."""
        indexed = _INDEXED.fullmatch(field)
        if indexed is not None:
            kind, index, rest = indexed[1], int(indexed[2]), indexed[3]
            if kind == "tools" and index < len(self.tools):
                return self.tools[index] + rest.replace(".function", "", 1)
            if kind == "messages" and index < len(self.messages):
                return self.messages[index].of(rest)
        for ours, theirs in _NAMES.items():
            if field == ours or field.startswith((f"{ours}.", f"{ours}[")):
                return theirs + field[len(ours) :]
        return field

    def error(self, error: ApiError | RequestError) -> ApiError | RequestError:
        """The same error in the response's own names."""
        if error.param is None:
            return error
        field, message = self.named(error.param), str(error) if isinstance(error, RequestError) else error.message
        if field == error.param:
            return error
        if message.startswith(error.param):
            message = field + message[len(error.param) :]
        if isinstance(error, RequestError):
            return RequestError(message, field, error.code)
        return ApiError(error.status, message, param=field, code=error.code, headers=error.headers)

    def miss(self, miss: dict[str, Any] | None) -> dict[str, Any] | None:
        """A ``miss`` whose path is one of the response's."""
        if miss is None or not isinstance(miss.get("path"), str):
            return miss
        return {**miss, "path": self.named(miss["path"])}
