"""What a request was answered, in whatever form it was recorded beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.chat.messages import normalize_messages
from agentcache.dialects.responses.items import read_input
from agentcache.errors import RequestError
from agentcache.lint.readers.dialects.anthropic import reply_message
from agentcache.lint.readers.dialects.completions import is_ids
from agentcache.lint.readers.dialects.placeholders import Placeholders
from agentcache.lint.readers.dialects.streams import whole_answer
from agentcache.lint.readers.sse import events_of
from agentcache.lint.records import Reply, Usage

_HELD_UNDER = ("body", "json", "data", "message", "response", "output")
"""Where wrappers of an answer keep it."""
_MOST_WRAPPERS = 4
_READ_TOKENS = "cache_read_input_tokens"
_WRITTEN_TOKENS = "cache_creation_input_tokens"


@dataclass(frozen=True, slots=True)
class Answer:
    """
    Attributes:
        id: of a response, by which later requests may go on from it.
        items: of a response.
    """

    reply: Reply | None
    usage: Usage
    prompt_ids: Sequence[int] | None = None
    id: str | None = None
    items: Sequence[Mapping[str, Any]] = ()


def read_answer(recorded: Any) -> Answer | None:
    """
    Args:
        recorded: an answer as JSON, the list of a stream's chunks, the text of either, or the reply as plain text; wrapped
            or not.

    Returns:
        ``None`` where nothing was answered: an error, or nothing that can be read.
    """
    found = _unwrapped(recorded)
    if isinstance(found, str):
        return Answer(Reply({"role": "assistant", "content": found}), Usage()) if found else None
    if found is None:
        return None
    reply = _reply(found)
    if reply is None:
        return None
    choice = _choice(found)
    ids = found.get("prompt_token_ids", choice.get("prompt_token_ids"))
    name, items = found.get("id"), found.get("output")
    return Answer(
        reply,
        _usage(found),
        prompt_ids=ids if is_ids(ids) else None,
        id=name if isinstance(name, str) else None,
        items=[item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else (),
    )


def _unwrapped(recorded: Any) -> Mapping[str, Any] | str | None:
    """The object that has the reply in it, or the reply's text."""
    for _ in range(_MOST_WRAPPERS):
        if isinstance(recorded, str):
            recorded = _parsed(recorded)
        if isinstance(recorded, list):
            recorded = whole_answer(recorded)
        if isinstance(recorded, str):
            return recorded
        if not isinstance(recorded, Mapping) or _failed(recorded):
            return None
        if _has_reply(recorded):
            return recorded
        recorded = next((recorded[key] for key in _HELD_UNDER if recorded.get(key) is not None), None)
    return None


def _parsed(text: str) -> Any:
    """JSON or events, if the text is either; else the text."""
    if text.lstrip().startswith(("data:", "event:")):
        return events_of(text)
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    held = whole_answer(value) if isinstance(value, list) else value
    return value if isinstance(held, Mapping) and (_has_reply(held) or _failed(held)) else text


def _failed(answer: Mapping[str, Any]) -> bool:
    status = answer.get("status_code", answer.get("status"))
    return bool(answer.get("error")) or (isinstance(status, int) and status >= 400)


def _has_reply(answer: Mapping[str, Any]) -> bool:
    if isinstance(answer.get("choices"), list) or isinstance(answer.get("output"), list):
        return True
    return answer.get("role") == "assistant"


def _choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, Mapping) else {}


def _reply(answer: Mapping[str, Any]) -> Reply | None:
    """
    Returns:
        ``None`` where there is none that a chat could hold.
    """
    try:
        if isinstance(answer.get("choices"), list):
            return _of_choice(_choice(answer))
        if isinstance(answer.get("output"), list):
            return _of_items(answer["output"])
        if isinstance(answer.get("content"), list):
            return Reply(reply_message(answer["content"]))
        return Reply(_checked(answer))
    except RequestError:
        return None


def _of_choice(choice: Mapping[str, Any]) -> Reply | None:
    message, text, ids = choice.get("message"), choice.get("text"), choice.get("token_ids")
    if isinstance(message, Mapping):
        said: Mapping[str, Any] | None = _checked({"role": "assistant", **message})
    else:
        said = {"role": "assistant", "content": text} if isinstance(text, str) else None
    drawn = ids if is_ids(ids) else None
    return None if said is None and drawn is None else Reply(said, drawn)


def _checked(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Raises:
        RequestError: no template could be given it.
    """
    normalize_messages([message])
    return message


def _of_items(items: Sequence[Any]) -> Reply | None:
    """One message of all items: two texts of one response are one reply."""
    messages = read_input(items, lambda _: None, Placeholders()).messages
    if not messages:
        return None
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    content = "".join(message.get("content") or "" for message in messages)
    thoughts = "".join(message.get("reasoning_content", "") for message in messages)
    said: dict[str, Any] = {"role": "assistant", "content": content or None if calls else content}
    said |= {"tool_calls": calls} if calls else {}
    return Reply(said | ({"reasoning_content": thoughts} if thoughts else {}))


def _usage(answer: Mapping[str, Any]) -> Usage:
    figures = answer.get("usage")
    if not isinstance(figures, Mapping):
        return Usage()
    cached = _count(figures.get("prompt_cache_hit_tokens"))
    for details in ("prompt_tokens_details", "input_tokens_details"):
        if isinstance(told := figures.get(details), Mapping):
            cached = _count(told.get("cached_tokens")) if cached is None else cached
    read = _count(figures.get(_READ_TOKENS))
    prompt = _count(figures.get("prompt_tokens"))
    if prompt is None and (prompt := _count(figures.get("input_tokens"))) is not None and cached is None:
        prompt += (read or 0) + (_count(figures.get(_WRITTEN_TOKENS)) or 0)  # Anthropic counts the three apart
    return Usage(prompt, read if cached is None else cached)


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
