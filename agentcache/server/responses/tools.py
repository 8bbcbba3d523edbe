"""Tools of a response, refused as HTTP has it, and the arguments of their calls on the way back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentcache.dialects.foreign import RefuseForeign
from agentcache.dialects.responses import tools as dialect
from agentcache.dialects.responses.tools import INPUT, Known, Toolbox, free_arguments
from agentcache.server.call_input import as_object
from agentcache.server.errors import api_refusals

__all__ = ["Known", "Toolbox", "chat_choice", "free_text", "read_tools", "told_arguments"]


def read_tools(tools: Sequence[Mapping[str, Any]]) -> Toolbox:
    """
    Raises:
        ApiError: 400, naming the tool that is not served, and why.
    """
    with api_refusals():
        return dialect.read_tools(tools, RefuseForeign())


def chat_choice(choice: object) -> object:
    """``tool_choice`` as chat completions spell it.

    Raises:
        ApiError: 400.
    """
    with api_refusals():
        return dialect.chat_choice(choice)


def told_arguments(toolbox: Toolbox, inner: str, arguments: str) -> str:
    """Those of a call of ``inner`` as they come back: of a custom tool, only its text is told."""
    return free_arguments(free_text(arguments)) if toolbox.known(inner).kind == "custom" else arguments


def free_text(arguments: str) -> str:
    """The input of a custom tool, as far as it was written; arguments of another form as they are."""
    try:
        value = json.loads(as_object(arguments))
    except (ValueError, RecursionError):
        return arguments
    text = value.get(INPUT)
    return text if isinstance(text, str) else arguments
