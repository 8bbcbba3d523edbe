"""AC704: a picture that was sent before comes again as other bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentcache.lint.parting import Parting
from agentcache.lint.records import Keys
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import renders_further
from agentcache.lint.structure.replays import MessageBody, Pair, replayed, with_message
from agentcache.lint.structure.words import counted

_PART = re.compile(r"\[(?P<kind>[\w.-]+): (?P<digest>[k-z]{16})\]")
"""What readers write for a part that is no text: its kind, and a digest of what it holds."""
_PICTURES = ("image", "image_url", "input_image")


def explain(parting: Parting) -> Cause | None:
    """Messages that were sent before are the same but for the digest of a picture (or of another part that is no text)."""
    changed: dict[int, MessageBody] = {}
    kinds: list[str] = []
    for pair in replayed(parting):
        if found := _changed_kinds(pair):
            changed[pair.number] = {**pair.after, "content": pair.before.get("content")}
            kinds += found
    if not changed:
        return None
    later = parting.later.record.body
    body = {**later, "messages": with_message(later["messages"], changed)}
    if not renders_further(parting, body):
        return None
    first = min(changed)
    keys, before, after = _first(parting, first)
    picture = all(kind in _PICTURES for kind in kinds)
    return Cause(
        place="parts encoded anew",
        edit=BodyEdit(body, keys),
        char=None,
        severity="error",
        before=before,
        after=after,
        message=f"{counted(len(kinds), 'image' if picture else 'attached part')} of earlier messages sent again as other bytes",
        help=(
            "encode a picture once and send the very same text of it again; do not scale or encode it anew, and do not sign its "
            "address anew, when a message is replayed. What the picture itself takes in the prompt comes on top of the figure"
        ),
    )


def _changed_kinds(pair: Pair) -> list[str]:
    """Kinds of the parts that differ, where nothing else does."""
    mine, theirs = _text(pair.before), _text(pair.after)
    if mine == theirs or _PART.sub(r"[\g<kind>]", mine) != _PART.sub(r"[\g<kind>]", theirs):
        return []
    pairs = zip(_PART.finditer(mine), _PART.finditer(theirs), strict=True)
    return [now["kind"] for was, now in pairs if was["digest"] != now["digest"]]


def _text(message: MessageBody) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(map(_part_text, content)) if isinstance(content, list) else ""


def _part_text(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else ""


def _first(parting: Parting, index: int) -> tuple[Keys, str, str]:
    """The first part that differs, and what stands for it."""
    keys: Keys = ("messages", index, "content")
    mine, theirs = (prompt.record.body["messages"][index]["content"] for prompt in (parting.earlier, parting.later))
    if isinstance(mine, list) and isinstance(theirs, list):
        for number, (was, now) in enumerate(zip(mine, theirs, strict=False)):
            if was != now:
                return (*keys, number), *_digests(_part_text(was), _part_text(now))
    return keys, *_digests(_text({"content": mine}), _text({"content": theirs}))


def _digests(before: str, after: str) -> tuple[str, str]:
    pairs = zip(_PART.finditer(before), _PART.finditer(after), strict=False)
    return next(((was[0], now[0]) for was, now in pairs if was[0] != now[0]), ("", ""))


RULE = Rule(
    code="AC704",
    name="image-bytes-changed",
    what="A picture (or a file) of an earlier message comes again as other bytes, or under another address.",
    why=(
        "A picture becomes part of the prompt, often more than a thousand tokens of it, and what is cached is found by what the "
        "picture's bytes say. Programs that scale it, encode it or sign its address for each request send another picture each "
        "time, and all that was said since is computed again."
    ),
    bad=(
        'turn 1: {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAA…"}}\n'
        'turn 2: {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/4AAQSkZJ…"}}'
    ),
    good=(
        'turn 1: {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAA…"}}\n'
        'turn 2: {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAA…"}}'
    ),
    fix_safety="Shown, never applied: which of the two pictures is meant cannot be told from the requests.",
    precedence=25,
    explain=explain,
)
