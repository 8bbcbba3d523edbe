"""AC207: a call's arguments are sent back in another writing than they were generated in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcache.chat.text import common_length
from agentcache.lint.finding import Fix
from agentcache.lint.parting import Parting
from agentcache.lint.records import Keys
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import renders_further
from agentcache.lint.structure.replays import MessageBody, function_of, paired_calls, replayed, same_value, with_message
from agentcache.lint.structure.words import around, as_json, counted


def explain(parting: Parting) -> Cause | None:
    """Arguments of replayed calls are the same JSON value, and another text."""
    pairs = replayed(parting, equal=True)
    found: list[tuple[Keys, Any, Any]] = []
    changed: dict[int, MessageBody] = {}
    for index, number, was, now in paired_calls(pairs):
        before, after = function_of(was).get("arguments"), function_of(now).get("arguments")
        if _text(before) == _text(after) or not same_value(before, after):
            continue
        keys: Keys = ("messages", index, "tool_calls", number, "function", "arguments")
        found.append((keys, before, after))
        changed[index] = _with_arguments(changed.get(index, pairs[index].after), number, before)
    if not found:
        return None
    later = parting.later.record.body
    body = {**later, "messages": with_message(later["messages"], changed)}
    if not renders_further(parting, body):
        return None
    keys, before, after = found[0]
    mine, theirs = _text(before), _text(after)
    char = common_length(mine, theirs)
    shown = around(mine, theirs, char)
    return Cause(
        place="arguments rewritten",
        edit=BodyEdit(body, keys),
        char=char if isinstance(after, str) else None,
        severity="error",
        before=shown[0],
        after=shown[1],
        message=f"the arguments of {counted(len(found), 'call')} are sent back in another writing than they were generated in",
        help="keep a call's arguments as the text that came; parse a copy of it to make the call, and send the text back",
        fix=Fix(applicability="safe"),
    )


def _text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else as_json(arguments)


def _with_arguments(message: MessageBody, number: int, arguments: object) -> MessageBody:
    calls = list(message["tool_calls"])
    call: Mapping[str, Any] = calls[number]
    calls[number] = {**call, "function": {**call["function"], "arguments": arguments}}
    return {**message, "tool_calls": calls}


RULE = Rule(
    code="AC207",
    name="call-arguments-rewritten",
    what="A replayed call has the arguments that were generated, parsed and written again: other blanks, escapes or key order.",
    why=(
        "The model wrote the arguments as text, and that text is cached. Programs that parse them into an object and write "
        "the object again get the same value in another text, so the call, its result and all that follows are computed again. "
        "It happens to every call of every turn."
    ),
    bad='generated: {"path":"a.py","line":3}\nreplayed:  {"line": 3, "path": "a.py"}',
    good='generated: {"path":"a.py","line":3}\nreplayed:  {"path":"a.py","line":3}',
    fix_safety="Safe: the arguments stay the same JSON value; only their text becomes the one that was generated.",
    precedence=25,
    explain=explain,
)
