"""What a request says about whose it is: its session, what keeps it apart from others, what it asks not to be told of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_HEADERS = ("x-session-id", "x-claude-code-session-id", "session_id")
"""Of clients that name their session in a header."""
_OWN = "agentcache_lint"
_CLAUDE_CODE = re.compile(r"_session_([0-9a-fA-F-]{8,})$")


def session_of(body: Mapping[str, Any], headers: Mapping[str, Any] | None) -> str | None:
    """The name of a request's session, where body or headers say one."""
    return next((name for name in _sessions(body, headers) if isinstance(name, str) and name), None)


def _sessions(body: Mapping[str, Any], headers: Mapping[str, Any] | None) -> Iterator[Any]:
    yield body.get("session")
    yield body.get("session_id")
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping):
        yield metadata.get("session_id")
        yield _session_in(metadata.get("user_id"))
    named = {str(name).lower(): value for name, value in (headers or {}).items()}
    yield from (named.get(name) for name in _HEADERS)


def _session_in(user: Any) -> Any:
    """Claude Code's ``user_id`` ends with a session's, or is a JSON object that has it."""
    if not isinstance(user, str):
        return None
    if found := _CLAUDE_CODE.search(user):
        return found[1]
    if not user.startswith("{"):
        return None
    try:
        value = json.loads(user)
    except (ValueError, RecursionError):
        return None
    return value.get("session_id") if isinstance(value, dict) else None


def scope_of(body: Mapping[str, Any]) -> str | None:
    """What keeps requests apart that say different ones: ``prompt_cache_key`` and ``user`` (Anthropic's ``user_id``)."""
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    said = [body.get("prompt_cache_key"), body.get("user"), None if _session_in(user) else user]
    return "\n".join(name for name in said if isinstance(name, str) and name) or None


def ignored_in(*holders: Mapping[str, Any]) -> dict[str, str]:
    """Codes that a record asks not to be told of, and the reasons that it gives (an empty one where it gives none).

    ::

        {"agentcache_lint": {"ignore": {"AC101": "the clock is part of the test"}}, "messages": […]}
    """
    found: dict[str, str] = {}
    for holder in holders:
        asked = holder.get(_OWN)
        ignore = asked.get("ignore") if isinstance(asked, Mapping) else None
        if isinstance(ignore, str):
            ignore = [ignore]
        if isinstance(ignore, list):
            ignore = dict.fromkeys((code for code in ignore if isinstance(code, str)), "")
        if isinstance(ignore, Mapping):
            found |= {str(code): reason if isinstance(reason, str) else "" for code, reason in ignore.items()}
    return found
