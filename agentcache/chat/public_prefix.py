"""Reads what the operator declares to be public: a system prompt, or the beginning of a conversation with its tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from agentcache.chat.renderer import ChatRenderer
from agentcache.errors import ChatTemplateError, RequestError, SettingsError

_NEXT = ("0", "Please go on")
"""Two ways in which a user may begin; what the model reads before either does not depend on it."""


def read_public_prefixes(path: Path, renderer: ChatRenderer, page_size: int) -> list[list[int]]:
    """Token ids of each beginning in a file.

    A ``.json`` file holds an object ``{"messages": [...], "tools": [...]}`` (tools may be left out) or a list of such.  Any
    other file is a text: the content of the system message, and as well a raw prompt's beginning.  A part of what the
    template makes of it that depends on what follows is left out.

    Raises:
        SettingsError: the file cannot be read, is not of that shape, or holds less than a page.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--public-prefix {path}: cannot be read: {error}") from None
    try:
        if path.suffix == ".json":
            prefixes = [_conversation(entry, renderer) for entry in _entries(text)]
        else:
            prefixes = _text(text.rstrip("\n"), renderer)
    except (ValueError, RequestError, ChatTemplateError) as error:
        raise SettingsError(f"--public-prefix {path}: {error}") from None
    longest = max(map(len, prefixes), default=0)
    if longest < page_size:
        raise SettingsError(f"--public-prefix {path}: holds {longest} tokens, expected at least a page ({page_size})")
    return prefixes


def _entries(text: str) -> list[Mapping[str, Any]]:
    data = json.loads(text)
    entries = data if isinstance(data, list) else [data]
    for entry in entries:
        known = isinstance(entry, dict) and entry.keys() <= {"messages", "tools"} and "messages" in entry
        if not known or not isinstance(entry["messages"], list) or not isinstance(entry.get("tools") or [], list):
            raise ValueError('got something else, expected {"messages": [...], "tools": [...]} or a list of such')
    return entries


def _text(text: str, renderer: ChatRenderer) -> list[list[int]]:
    prefixes = [renderer.encode_prompt(text)]
    if renderer.tokenizer.chat_template is not None:
        prefixes.append(_conversation({"messages": [{"role": "system", "content": text}]}, renderer))
    return prefixes


def _conversation(entry: Mapping[str, Any], renderer: ChatRenderer) -> list[int]:
    """What every prompt that begins with these messages has in common."""
    messages, tools = entry["messages"], entry.get("tools") or None
    if messages and isinstance(messages[-1], dict) and messages[-1].get("role") == "user":
        return renderer.render_text(messages, tools=tools).encode()[0]
    one, other = (
        renderer.render_text([*messages, {"role": "user", "content": text}], tools=tools).encode()[0] for text in _NEXT
    )
    return [token for token, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]
