"""AC405: a reply is sent back without the reasoning that it came with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentcache.lint.parting import Parting
from agentcache.lint.records import Keys
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import renders_further
from agentcache.lint.structure.replays import MessageBody, replayed, with_message
from agentcache.lint.structure.words import counted, cut

_FIELDS = ("reasoning_content", "thinking", "reasoning")
_INLINE = re.compile(r"\s*<(think|thinking|thought|reasoning)>(?P<said>.*?)</\1>\s*", re.DOTALL)


def explain(parting: Parting) -> Cause | None:
    """Reasoning of earlier replies is missing, and the template would have printed it."""
    pairs = replayed(parting)
    changed: dict[int, MessageBody] = {}
    shown = ""
    for pair in pairs:
        if pair.before.get("role") != "assistant":
            continue
        restored = _restored(pair.before, pair.after)
        if restored is not None:
            changed[pair.number] = restored
            shown = shown or _reasoning(pair.before)
    if not changed:
        return None
    later = parting.later.record.body
    body = {**later, "messages": with_message(later["messages"], changed)}
    if not renders_further(parting, body):
        return None
    index = min(changed)
    keys: Keys = ("messages", index, "content") if later["messages"][index].get("content") else ("messages", index)
    return Cause(
        place="reasoning left out",
        edit=BodyEdit(body, keys, puts_back=True),
        char=None,
        severity="warning",
        before=cut(shown),
        after="no reasoning",
        message=f"{counted(len(changed), 'reply')} sent back without reasoning that this template prints".replace(
            "replys", "replies"
        ),
        help=(
            "send replies back with the reasoning that they came with (reasoning_content); the template leaves out what the "
            "model is not to see again"
        ),
    )


def _restored(before: Mapping[str, Any], after: Mapping[str, Any]) -> MessageBody | None:
    """``after`` with the reasoning of ``before``; ``None`` when it lacks none, or more than that differs."""
    if not _reasoning(before) or _reasoning(after):
        return None
    content = before.get("content")
    if isinstance(content, str) and (inline := _INLINE.match(content)) is not None:
        if content[inline.end() :].strip() != str(after.get("content") or "").strip():
            return None
        return {**after, "content": content}
    if str(content or "").strip() != str(after.get("content") or "").strip():
        return None
    return {**after, **{name: before[name] for name in _FIELDS if before.get(name)}}


def _reasoning(message: Mapping[str, Any]) -> str:
    field = next((message[name] for name in _FIELDS if isinstance(message.get(name), str) and message[name]), "")
    content = message.get("content")
    inline = _INLINE.match(content) if isinstance(content, str) else None
    return field or (inline["said"].strip() if inline is not None else "")


RULE = Rule(
    code="AC405",
    name="reasoning-stripped",
    what="A reply is replayed without its reasoning text, where the chat template would have printed it.",
    why=(
        "The reasoning was generated, so it is cached, in front of the reply's text. Many templates print the reasoning of the "
        "turn that is under way, between a call and the next one. A program that drops it makes the template write another "
        "text, and the model thinks the same again. Where a template leaves old reasoning out by itself, nothing is reported."
    ),
    bad='{"role": "assistant", "content": "", "tool_calls": […]}',
    good='{"role": "assistant", "reasoning_content": "The test imports …", "content": "", "tool_calls": […]}',
    fix_safety="Shown, never applied: what a model reads of its own reasoning changes what it does next.",
    precedence=25,
    explain=explain,
)
