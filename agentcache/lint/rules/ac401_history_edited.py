"""AC401: an earlier message is not what was sent, or generated, before."""

from __future__ import annotations

from agentcache.chat.text import common_length
from agentcache.lint.parting import Parting
from agentcache.lint.records import Body, Keys
from agentcache.lint.rules.base import BodyEdit, Cause, Edit, NoEdit, Rule
from agentcache.lint.structure.histories import Change, Shift, shift_of
from agentcache.lint.structure.recomputed import tokens_between
from agentcache.lint.structure.replays import call_names, calls_of, function_of
from agentcache.lint.structure.words import around, counted, line_of


def explain(parting: Parting) -> Cause | None:
    """A message in the middle of a conversation says something else than before."""
    shift = shift_of(parting)
    if shift is None or shift.change is not Change.EDITED:
        return None
    was, now = shift.gone[0], shift.new[0]
    keys, char = _place(parting, shift)
    shown = around(was["content"], now["content"], char) if char is not None else (line_of(was), line_of(now))
    what = "the system text" if now["role"] in ("system", "developer") else f"an earlier {now['role']} message"
    if len(shift.new) > 1:
        what = counted(len(shift.new), "earlier message")
    return Cause(
        place=("edited", parting.session, now["role"]),
        edit=_edit(parting, shift, keys),
        char=char,
        severity="error" if now["role"] != "assistant" else "warning",
        before=shown[0],
        after=shown[1],
        message=f"{what} is not what {'was generated' if _is_reply(parting, shift) else 'it was'}",
        help="append what is new, and leave what was sent before as it was sent; say a correction in the newest message",
    )


def _is_reply(parting: Parting, shift: Shift) -> bool:
    return parting.replay and shift.at == len(parting.earlier.messages) - 1


def _place(parting: Parting, shift: Shift) -> tuple[Keys, int | None]:
    """The string that differs, and its first character that does."""
    keys: Keys = ("messages", shift.at)
    was, now = (prompt.record.body["messages"][shift.at] for prompt in (parting.earlier, parting.later))
    before, after = was.get("content"), now.get("content")
    if isinstance(before, str) and isinstance(after, str) and before != after:
        return (*keys, "content"), common_length(before, after)
    if call_names(was) == call_names(now):
        for number, (mine, theirs) in enumerate(zip(calls_of(was), calls_of(now), strict=True)):
            if function_of(mine).get("arguments") != function_of(theirs).get("arguments"):
                return (*keys, "tool_calls", number, "function", "arguments"), None
    return (*keys, "content") if "content" in now else keys, None


def _edit(parting: Parting, shift: Shift, keys: Keys) -> Edit:
    """The message as it was.  A text that was cut down is not put back: what is lost is what stands behind it."""
    old, new = (sum(len(message["content"]) for message in messages) for messages in (shift.gone, shift.new))
    if old > 2 * new + 200:
        first = shift.at + len(shift.new)
        return NoEdit(keys, tokens_between(parting, first, first + shift.again), "exact")
    return BodyEdit(_put_back(parting, shift), keys)


def _put_back(parting: Parting, shift: Shift) -> Body:
    later, at = parting.later.record.body, shift.at
    messages = list(later["messages"])
    messages[at : at + len(shift.new)] = parting.earlier.record.body["messages"][at : at + len(shift.gone)]
    return {**later, "messages": messages}


RULE = Rule(
    code="AC401",
    name="history-edited",
    what="A message that was sent or generated before comes back with another text, and the conversation goes on behind it.",
    why=(
        "Everything behind the edited place is computed again. Common edits: a reminder or a time that was in the newest "
        "message and is taken out of it later, results that are shortened after a turn, replies that are cleaned up before "
        "they are stored."
    ),
    bad=(
        'turn 1: {"role": "user", "content": "Fix the parser. (Open files: a.py)"}\n'
        'turn 2: {"role": "user", "content": "Fix the parser."}'
    ),
    good=(
        'turn 1: {"role": "user", "content": "Fix the parser. (Open files: a.py)"}\n'
        'turn 2: {"role": "user", "content": "Fix the parser. (Open files: a.py)"}'
    ),
    fix_safety="Shown, never applied: nobody but the program knows which of the two texts is meant.",
    precedence=90,
    explain=explain,
)
