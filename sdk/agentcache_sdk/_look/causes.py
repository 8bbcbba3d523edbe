"""Names for where two requests part."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from agentcache_sdk._codes import code_name
from agentcache_sdk._look.history import HEAD_ROLES, Parting
from agentcache_sdk._look.said import Said, SaidCall, Setting, same_model, tokens
from agentcache_sdk._look.texts import (
    TextChange,
    edit_change,
    environment_change,
    set_change,
    shown,
    slot_changes,
    span,
    words_change,
    writing_change,
)
from agentcache_sdk._look.tools import ToolChange
from agentcache_sdk.types import Finding, Location


def finding(code: str, path: str, lost: int, *, message: str, char: int | None = None, **more: Any) -> Finding:
    """A confirmed waste of about ``lost`` tokens, unless ``more`` says otherwise."""
    fields = {"severity": "warning", "confidence": "confirmed", "verdict": "waste", **more}
    return Finding(
        code=code,
        name=code_name(code),
        location=Location(path=path, char=char),
        tokens_lost=lost,
        tokens_lost_kind="estimate",
        message=message,
        **fields,
    )


def tool_finding(change: ToolChange, setting: Setting, behind: int) -> Finding:
    """
    Args:
        behind: characters of the messages that are the same and stand behind the tools.
    """
    lost = tokens(sum(len(tool) for tool in setting.tools[change.first :]) + behind)
    return finding(
        change.code,
        change.path,
        lost,
        char=change.char,
        severity=change.severity,
        before=change.before,
        after=change.after,
        message=_TOOL_WORDS.get(change.code, "the text of a tool changes from request to request"),
    )


_TOOL_WORDS = {
    "AC201": "the same schema is written with its keys or numbers in another way",
    "AC202": "the same tools come in another order",
    "AC203": "the same list comes in another order",
    "AC301": "other tools are offered than in an earlier request with the same beginning",
    "AC302": "a tool is described in another way than in an earlier request",
}


def setting_finding(before: Setting, after: Setting, lost: int) -> Finding | None:
    """A conversation that goes on under another model, salt or template option; tools are not looked at."""
    if not same_model(before.model, after.model):
        code, path, values = "AC601", "model", (before.model, after.model)
    elif before.salt != after.salt:
        code, path, values = "AC602", "cache_salt", (None, None)  # a salt may be a secret
    elif before.options != after.options:
        code, path, values = "AC604", "chat_template_kwargs", (before.options, after.options)
    else:
        return None
    words = f"the conversation goes on under another {_SETTING_WORDS[code]}"
    return finding(code, path, lost, before=values[0], after=values[1], message=words)


_SETTING_WORDS = {"AC601": "model", "AC602": "cache salt", "AC604": "option of the chat template"}


def parting_findings(parting: Parting, others: Sequence[str]) -> Iterator[Finding]:
    """What the difference is called; several where a text has several slots of different kinds.

    Args:
        others: further earlier texts of the message that differs.
    """
    if parting.gone != parting.new:
        yield _moved_finding(parting)
        return
    a, b = parting.pair
    path = f"messages[{parting.at}]"
    if a.role != b.role or (a.text == b.text and b.role != "assistant"):
        yield finding(
            "AC401",
            path,
            tokens(parting.shared),
            before=_line(a),
            after=_line(b),
            message="an earlier message is edited",
        )
    elif b.role == "assistant":
        yield replay_finding(a, b, parting.at, tokens(parting.shared)) or _edited(parting)
    else:
        for change in _text_changes(parting, a.text, b.text, others):
            yield _changed(parting, change, b.role)


def _moved_finding(parting: Parting) -> Finding:
    """Messages were taken out or put in."""
    path, lost = f"messages[{parting.at}]", tokens(parting.shared)
    if parting.gone == 0 or (parting.new == 0 and parting.moved):
        what = "a message is put in before ones that were sent already"
        return finding("AC404", path, lost, after=_line(parting.later[parting.at]), message=what)
    gone = _line(parting.earlier[parting.at])
    if parting.new == 0:
        what = f"{parting.gone} earlier message{'s are' if parting.gone > 1 else ' is'} left out"
        return finding("AC402", path, lost, before=gone, message=what)
    if parting.gone > parting.new:
        what = f"{parting.gone} earlier messages are replaced by {parting.new}"
        return finding("AC403", path, lost, severity="info", verdict="legitimate", before=gone, message=what)
    return _edited(parting)


def _edited(parting: Parting) -> Finding:
    a, b = parting.pair
    change = edit_change(a.text, b.text, span(a.text, b.text))
    return _changed(parting, change, b.role)


def _text_changes(parting: Parting, a: str, b: str, others: Sequence[str]) -> list[TextChange]:
    where = span(a, b)
    change = writing_change(a, b, where.head) or set_change(a, b, where)
    if change:
        return [change]
    slots = slot_changes(a, b, where)
    if parting.later[parting.at].role in HEAD_ROLES:
        change = environment_change(a, b, where)
        if slots:
            return [change] if change and slots[0].code == "AC103" else slots
        change = change or words_change(a, b, where, others)
        if change is None and parting.meets:
            change = edit_change(a, b, where)
            change = TextChange("AC103", change.char, change.before, change.after)
        return [change] if change else []
    times = [slot for slot in slots if slot.code == "AC101"]
    if parting.meets:
        return times[:1] or [edit_change(a, b, where)]
    change = words_change(a, b, where, others)
    return times[:1] or ([change] if change and change.code == "AC105" else [])


def _changed(parting: Parting, change: TextChange, role: str) -> Finding:
    words = _TEXT_WORDS.get(change.code, "text before a part that is always the same changes from request to request")
    return finding(
        change.code,
        f"messages[{parting.at}].content",
        tokens(parting.shared),
        char=change.char,
        severity=change.severity,
        before=change.before,
        after=change.after,
        message=words.format(owner=_OWNERS.get(role, f"an earlier {role} message")),
    )


_OWNERS = {"system": "the system text", "developer": "the developer's text"}
_TEXT_WORDS = {
    "AC101": "a date or time in {owner} changes from request to request",
    "AC102": "an id or a temporary path in {owner} changes from request to request",
    "AC103": "a part of {owner} changes from request to request",
    "AC104": "facts about the machine in {owner} change from request to request",
    "AC105": "what is particular to this request stands before what all of them share",
    "AC203": "the same items come in another order in {owner}",
    "AC204": "{owner} is the same but for white space",
    "AC205": "{owner} is the same text in another Unicode form",
    "AC206": "{owner} is the same text with other escapes",
    "AC401": "{owner} is not what was sent before",
}


def replay_finding(reply: Said, replayed: Said, index: int, lost: int) -> Finding | None:
    """A reply that is not sent back as it came; ``None`` when it is another reply altogether.

    Whether it matters is for the server to say: many know a reply again by what it says.
    """
    path = f"messages[{index}]"
    if reply.without_reasoning() == replayed.without_reasoning():
        words = "a reply is sent back without its reasoning"
        return finding("AC405", f"{path}.reasoning_content", lost, before=shown(reply.reasoning), message=words)
    if [c.name for c in reply.calls] != [c.name for c in replayed.calls]:
        return None
    for n, (was, now) in enumerate(zip(reply.calls, replayed.calls, strict=True)):
        if found := _call_finding(was, now, f"{path}.tool_calls[{n}]", lost):
            return found
    if reply.text == replayed.text:
        return None
    where = span(reply.text, replayed.text)
    change = writing_change(reply.text, replayed.text, where.head)
    if change is None and where.head + where.tail < max(len(reply.text), len(replayed.text)) / 2:
        return None
    change = change or edit_change(reply.text, replayed.text, where)
    words = _TEXT_WORDS[change.code].format(owner="a reply")
    place = f"{path}.content"
    return finding(change.code, place, lost, char=change.char, message=words, before=change.before, after=change.after)


def _call_finding(was: SaidCall, now: SaidCall, path: str, lost: int) -> Finding | None:
    if was.arguments != now.arguments:
        same = _loaded(was.arguments) == _loaded(now.arguments)
        code, words = (
            ("AC207", "a call's arguments are sent back in another writing than they were generated in")
            if same
            else ("AC401", "a call's arguments are not what was generated")
        )
        before, after = shown(was.arguments), shown(now.arguments)
        return finding(code, f"{path}.function.arguments", lost, message=words, before=before, after=after)
    if was.id != now.id:
        words = "a call is sent back under another id than it was generated with"
        return finding("AC208", f"{path}.id", lost, before=was.id, after=now.id, message=words)
    return None


def _loaded(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def _line(message: Said) -> str:
    return shown(f"{message.role}: {message.text or ', '.join(call.name for call in message.calls)}", 80)
