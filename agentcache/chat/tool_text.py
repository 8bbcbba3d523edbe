"""Tools as plain text, for models whose chat template knows nothing of tools.

The schemas stand in a block at the end of the system message; calls and results are written the way the block asks for::

    <tool_call>{"name": "read_file", "arguments": {"path": "a.py"}}</tool_call>
    <tool_response>print("hello")</tool_response>

Each piece depends only on the tools and on its own message, so a later turn never changes earlier text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_BLOCK = """\
# Tools

You can call these tools. Each line is the JSON schema of one of them:
{schemas}

To call a tool, write one line like this for each call, and wait for the result:
<tool_call>{{"name": "name of the tool", "arguments": {{"argument": "value"}}}}</tool_call>"""


def tools_block(tools: Sequence[Mapping[str, Any]]) -> str:
    """The system-level block that describes ``tools``, in the order given."""
    return _BLOCK.format(schemas="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))


def call_text(call: Mapping[str, Any]) -> str:
    """One tool call.  Arguments that came as JSON text are kept as they were written."""
    function = call["function"]
    arguments = function["arguments"]
    if not isinstance(arguments, str) or not _is_json(arguments):
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'<tool_call>{{"name": {name}, "arguments": {arguments}}}</tool_call>'


def with_calls(content: str, calls: Sequence[Mapping[str, Any]]) -> str:
    """An assistant's text followed by its calls, a line each."""
    return "\n".join(filter(None, [content, *map(call_text, calls)]))


def result_text(content: str) -> str:
    """One tool result, for templates that have no place for it."""
    return f"<tool_response>{content}</tool_response>"


def with_block(content: str, block: str) -> str:
    """``block`` at the end of a system message."""
    return f"{content}\n\n{block}" if content else block


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
