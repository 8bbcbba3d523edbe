"""What ``agentcache serve --trace FILE`` writes: one answered prompt a line, with the exact token ids.

::

    {"format": "agentcache-trace", "version": 1, "route": "/v1/chat/completions", "session": null, "tenant": null,
     "cache_salt": null, "model": "smollm2",
     "request": {body as it was sent},
     "conversation": {all that the prompt says; left out where the body says it},
     "prompt_token_ids": [...], "choices": [{"index": 0, "token_ids": [...], "end_token": 2, "message": {...}}],
     "usage": {"prompt_tokens": ..., "prompt_tokens_details": {"cached_tokens": ...}}, "agentcache": {...}}

The ids are the truth: what is matched and counted is what the model read and drew, however its text would be tokenised.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from agentcache.lint.readers.dialects import to_record
from agentcache.lint.records import Record, Reply, Unreadable, Usage

FORMAT, VERSION = "agentcache-trace", 1
MARK = FORMAT.encode()
"""What every line of a trace has in it somewhere."""


def is_trace(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a line was written by a server of ours, of any version."""
    return isinstance(value, Mapping) and value.get("format") == FORMAT


def read_trace(value: Mapping[str, Any], file: str, line: int) -> Record | Unreadable:
    """One line of a trace as a record with the ids of its prompt and, of its first choice, of the reply."""
    if value.get("version") != VERSION:
        return Unreadable(file, line, f"version: got {value.get('version')!r}, expected a trace of version {VERSION}")
    ids, choices = _ids(value.get("prompt_token_ids")), value.get("choices")
    if not ids:
        return Unreadable(file, line, "prompt_token_ids: expected a list of token ids")
    said = next((name for name in ("conversation", "request") if isinstance(value.get(name), Mapping)), None)
    if said is None:
        return Unreadable(file, line, "request is missing: expected the body that was sent")
    route = value.get("route") if said == "request" and isinstance(value.get("route"), str) else None
    body = {**value[said], **({} if "model" not in value else {"model": value["model"]})}
    record = to_record(body, file, line, prefix=f"{said}.", url=route)
    if isinstance(record, Unreadable):
        return record
    session = value.get("session")
    return replace(
        record,
        body=_in_namespace(record.body, value),
        session=session if isinstance(session, str) else record.session,
        prompt_ids=ids,
        reply=_reply(choices[0]) if isinstance(choices, list) and choices else None,
        usage=_usage(value.get("usage")),
        source=None,
    )


def _in_namespace(body: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the salt of its session, and, of a server with several keys, apart from what other keys sent."""
    tenant, salt = value.get("tenant"), value.get("cache_salt")
    if isinstance(tenant, int):
        return {**body, "cache_salt": f"key {tenant}" + (f", {salt}" if isinstance(salt, str) else "")}
    return {**body, "cache_salt": salt} if isinstance(salt, str) else body


def _ids(value: Any) -> array[int] | None:
    """As the array that a long prompt takes least room in."""
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        return None
    try:
        return array("I", value)
    except OverflowError:
        return None


def _reply(choice: Any) -> Reply | None:
    if not isinstance(choice, Mapping):
        return None
    message, ids = choice.get("message"), _ids(choice.get("token_ids"))
    if ids is not None and choice.get("end_token", ids) is None:
        ids = ids[:-1]  # the last that was drawn was not computed any more; behind an end token that is the end token
    return Reply(message if isinstance(message, Mapping) else None, ids)


def _usage(value: Any) -> Usage | None:
    """``None`` of a request that was cut: what it found in the cache was never told, and nobody forgot to record it."""
    cached = _count(value.get("prompt_tokens_details"), "cached_tokens") if isinstance(value, Mapping) else None
    return None if cached is None else Usage(_count(value, "prompt_tokens"), cached)


def _count(value: Any, name: str) -> int | None:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if type(found) is int else None
