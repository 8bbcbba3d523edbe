"""AC208: a call is sent back under another id than it came with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcache.chat.text import common_length
from agentcache.lint.finding import Fix
from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import renders_further
from agentcache.lint.structure.replays import (
    MessageBody,
    calls_of,
    function_of,
    id_of,
    loaded,
    paired_calls,
    replayed,
)
from agentcache.lint.structure.values import canonical
from agentcache.lint.structure.words import counted


def explain(parting: Parting) -> Cause | None:
    """The same calls have other ids than before, and the template prints ids."""
    pairs = replayed(parting)
    renamed: dict[str, str] = {}
    first: tuple[int, int, str, str] | None = None
    for index, number, was, now in paired_calls(pairs):
        before, after = id_of(was), id_of(now)
        if before is None or after is None or before == after:
            continue
        if not _same_call(was, now):
            return None  # another reply
        first = first or (index, number, before, after)
        renamed[after] = before
    if first is None:
        return None
    later = parting.later.record.body
    body = {**later, "messages": [_renamed(message, renamed) for message in later["messages"]]}
    if not renders_further(parting, body):
        return None
    index, number, before, after = first
    return Cause(
        place="ids regenerated",
        edit=BodyEdit(body, ("messages", index, "tool_calls", number, "id")),
        char=common_length(before, after),
        severity="error",
        before=before,
        after=after,
        message=f"{counted(len(renamed), 'call')} sent back under other ids than they came with",
        help="keep the id that a reply's call came with, send the call back with it, and answer under the same one",
        fix=Fix(applicability="safe"),
    )


def _same_call(was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    mine, theirs = (function_of(call) for call in (was, now))
    return canonical(loaded(mine.get("arguments"))) == canonical(loaded(theirs.get("arguments")))


def _renamed(message: MessageBody, renamed: Mapping[str, str]) -> MessageBody:
    """With the ids of its calls, or of the call that it answers, as they were."""
    changed = dict(message)
    if any(id_of(call) in renamed for call in calls_of(message)):
        changed["tool_calls"] = [
            {**call, "id": renamed.get(call["id"], call["id"])} if id_of(call) is not None else call
            for call in calls_of(message)
        ]
    if message.get("tool_call_id") in renamed:
        changed["tool_call_id"] = renamed[message["tool_call_id"]]
    return changed


RULE = Rule(
    code="AC208",
    name="call-id-regenerated",
    what="A replayed call and its result carry another id than the one that the reply came with.",
    why=(
        "Some chat templates print the ids of calls. A program that makes up new ones when it rebuilds the history changes "
        "the text of every call, each time."
    ),
    bad='request 2: {"tool_calls": [{"id": "call_7Qx", …}]}\nrequest 3: {"tool_calls": [{"id": "call_b01", …}]}',
    good='request 2: {"tool_calls": [{"id": "call_7Qx", …}]}\nrequest 3: {"tool_calls": [{"id": "call_7Qx", …}]}',
    fix_safety="Safe: ids only pair calls with results, and both are changed together.",
    precedence=25,
    explain=explain,
)
