"""APIs that requests are written for, each brought to the body of a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcache.lint.readers.dialects.kinds import kind
from agentcache.lint.records import PlainPlaces, Record, Unreadable


def to_record(
    value: Mapping[str, Any],
    file: str,
    line: int,
    *,
    prefix: str = "",
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    response: object = None,
) -> Record | Unreadable:
    """A request body of any dialect as a record, or the reason why it is none.

    Args:
        value: the request's body.
        line: which record of the file it is, from 1.
        prefix: where the body stands in the record: empty, or ``body.``.
        url: address or path that it was sent to, if known: tells dialects apart.
        headers: of the request.
        response: what was answered, as JSON: a whole answer, its body, or the chunks of a stream.
    """
    if fault := _fault(value, prefix):
        return Unreadable(file, line, fault)
    session = value.get("session")
    return Record(file, line, value, PlainPlaces(prefix), session=session if isinstance(session, str) else None)


def _fault(body: Mapping[str, Any], prefix: str) -> str | None:
    if "messages" not in body:
        return f"{prefix}messages is missing: expected the body of an OpenAI chat request"
    messages = body["messages"]
    if not isinstance(messages, list) or not messages:
        return f"{prefix}messages: got {kind(messages)}, expected a list with at least one message"
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            got = "an object without a role" if isinstance(message, dict) else kind(message)
            return f"{prefix}messages[{index}]: got {got}, expected an object with a role"
        content = message.get("content")
        if content is not None and not isinstance(content, (str, list)):
            return f"{prefix}messages[{index}].content: got {kind(content)}, expected a string, a list of parts or null"
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        return f"{prefix}tools: got {kind(tools)}, expected a list"
    variables = body.get("chat_template_kwargs")
    if variables is not None and not isinstance(variables, dict):
        return f"{prefix}chat_template_kwargs: got {kind(variables)}, expected an object"
    return None
