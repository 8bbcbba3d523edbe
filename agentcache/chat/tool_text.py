"""Tools as plain text, for models whose chat template knows nothing of tools, and for tools that come later.

The schemas stand in a block at the end of the system message; calls and results are written the way the block asks for::

    <tool_call>{"name": "read_file", "arguments": {"path": "a.py"}}</tool_call>
    <tool_response>print("hello")</tool_response>

Tools that come later are announced beside a message that is new with them, where the template takes it::

    user     [ announcement ][ the user's words ]
    tool     [ result ] user [ announcement ]         or [ result ][ announcement ], where no user may speak behind a result

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

_FIRST = """\
# Tools

From now on you can call these tools. Each line is the JSON schema of one of them:
{schemas}

To call a tool, write this, with its name and its arguments, and wait for the result:
{example}"""

_MORE = """\
# More tools

From now on you can call these tools as well, in the same way as those you know. Each line is the JSON schema of one of them:
{schemas}"""

ANNOUNCED = "agentcache_announced"
"""The key under which a message carries its ``Announcement``."""


class Announcement(str):
    """What the server says beside a message.  A type of its own: no client can send one, since JSON has none."""

    __slots__ = ()


def announcement(tools: Sequence[Mapping[str, Any]], example: str | None) -> Announcement:
    """Tells of ``tools``, which were not known before.

    Args:
        example: how a call is written, for a model that was told of no tools before.
    """
    text = _MORE if example is None else _FIRST
    return Announcement(text.format(schemas=_lines(tools), example=example))


def with_announcement(messages: Sequence[Mapping[str, Any]], told: Announcement) -> list[dict[str, Any]]:
    """``messages`` (one at least), of which the first of a user, or else the last one, carries ``told``."""
    asked = (index for index, message in enumerate(messages) if message.get("role") == "user")
    place = next(asked, len(messages) - 1)
    return [{**message, ANNOUNCED: told} if index == place else dict(message) for index, message in enumerate(messages)]


def announced(message: Mapping[str, Any]) -> Announcement | None:
    """What is told beside a message."""
    told = message.get(ANNOUNCED)
    return told if isinstance(told, Announcement) else None


def tools_block(tools: Sequence[Mapping[str, Any]]) -> str:
    """The system-level block that describes ``tools``, in the order given."""
    return _BLOCK.format(schemas=_lines(tools))


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


def _lines(tools: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
