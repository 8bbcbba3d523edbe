"""What became of a conversation's earlier messages.

::

    edited      was [u1][a1][u2]            now [u1'][a1][u2][a2][u3]
    dropped     was [u1][a1][u2][a2][u3]    now [u2][a2][u3][a3][u4]
    compacted   was [u1][a1][u2][a2][u3]    now [summary][u3][a3][u4]
    inserted    was [u1][a1][u2]            now [note][u1][a1][u2][a2][u3]
    moved       was [u1][note][a1]          now [u1][a1][u2][note]

All of them are told from forks by what stands behind: the same messages again, and more of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from agentcache.chat.messages import Message
from agentcache.chat.text import common_length
from agentcache.lint.parting import Parting
from agentcache.lint.structure.conversations import HEAD_ROLES, answers_behind, comparable, grows, has_reply

_MUCH = 400
"""Characters that do not come again by chance behind a message that is wholly another."""
_SOME = 64
_SUMMARY = re.compile(
    r"\bsummar(?:y|ies) of (?:what|our|everything|(?:the|this|all|our)(?: \w+)? (?:conversation|session|discussion|chat|work"
    r"|progress|history|context|messages|steps))\b|\b(?:conversation|context|session|progress)[ -]summary\b"
    r"|<summary>|^\W*summary\b|\bhas been (?:summari[sz]ed|compacted)\b|\b(?:conversation|session|progress) so far\b"
    r"|\bcontinued from (?:a|the) previous\b|\b(?:previous|earlier) (?:conversation|messages|session)\b.{0,40}\bsummar",
    re.IGNORECASE,
)
"""What a message says that stands for those that it replaces."""
_REQUEST = re.compile(
    r"\W*(?:please|write|give|create|make|produce|provide|prepare|generate|can|could|would|you|i want|summari[sz]e)\b",
    re.IGNORECASE,
)
"""How somebody begins who asks for a summary."""
_BEGINNING = 600
"""Characters of a message in which it says that it is a summary."""
_SUMMED_UP = 4
"""Messages; fewer need no summary."""
_STUB = re.compile(r"\b(?:truncat|omitt|trimm|remov|delet|clear|dropp|skipp|elid|hidden|pruned)\w*", re.IGNORECASE)
_STUB_CHARS = 200


class Change(Enum):
    """What was done to the messages."""

    EDITED = "edited"
    DROPPED = "dropped"
    COMPACTED = "compacted"
    INSERTED = "inserted"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class Shift:
    """::

        earlier:  [ at messages, the same in both )[ gone )[ again …
        later:    [ at messages, the same in both )[ new  )[ again …

    Attributes:
        at: as the alignment counts.
        most: what is gone is two thirds of the conversation's text, or more.
    """

    change: Change
    at: int
    gone: tuple[Message, ...]
    new: tuple[Message, ...]
    again: int
    most: bool = False


def shift_of(parting: Parting) -> Shift | None:
    """What was done to the earlier messages where the two requests part; ``None`` where they are not turns of one
    conversation, or nothing that was said comes again."""
    if not comparable(parting):
        return None
    if parting.session is None:
        return _summed_up(parting)
    alignment = parting.alignment
    if alignment.appends_only:
        return None
    at, mine, theirs = alignment.at, parting.earlier.messages, parting.later.messages
    gone, new = mine[at : at + alignment.gone], theirs[at : at + alignment.new]
    if not alignment.again:
        return _without_more(parting, gone, new)
    most = 3 * _chars(gone) >= 2 * _chars(message for message in mine if message["role"] not in HEAD_ROLES)
    if most and len(new) == 1 and len(gone) >= _SUMMED_UP and alignment.meets and _is_summary(new[0]["content"]):
        return Shift(Change.COMPACTED, at, gone, new, alignment.again, most)  # the same question may be asked again
    if not (alignment.meets or answers_behind(parting)) or not grows(parting):
        return _wandering(parting)
    change = _change(parting, gone, new, most)
    return None if change is None else Shift(change, at, gone, new, alignment.again, most)


def _change(parting: Parting, gone: tuple[Message, ...], new: tuple[Message, ...], most: bool) -> Change | None:
    if not gone:
        return Change.INSERTED
    if not new:
        return Change.MOVED if parting.alignment.moved or _was_a_note(parting, gone) else Change.DROPPED
    if len(gone) > len(new):
        is_stub = len(new) == 1 and len(new[0]["content"]) <= _STUB_CHARS and _STUB.search(new[0]["content"])
        return Change.COMPACTED if most and not is_stub else Change.DROPPED
    if len(gone) == len(new) == 1 and not _is_the_same_message(parting, gone[0], new[0]):
        return None
    return Change.EDITED


def _is_the_same_message(parting: Parting, was: Message, now: Message) -> bool:
    """An edit of it, and not another conversation's message with the same ones behind."""
    if was["role"] in HEAD_ROLES or parting.alignment.again_chars >= _MUCH:
        return True
    return similar(was, now)


def _wandering(parting: Parting) -> Shift | None:
    """A note that stood before the newest message, and stands before the next one now.

    ::

        earlier:  [ … ][ note ][ user ]
        later:    [ … ][ user ][ reply ][ note ][ user ]      the note itself may be the longest text that comes again
    """
    at, mine, theirs = parting.alignment.at, parting.earlier, parting.later
    left = mine.digests[at + 1 :]
    if not left or not parting.alignment.moved or theirs.digests[at : at + len(left)] != left:
        return None
    if not has_reply(theirs.messages[at + len(left) :][:1]):
        return None
    return Shift(Change.MOVED, at, mine.messages[at : at + 1], (), len(left))


def _was_a_note(parting: Parting, gone: tuple[Message, ...]) -> bool:
    """What is gone was put between two messages, and no exchange went with it."""
    if any(message["role"] in ("assistant", "tool", "function") for message in gone):
        return False
    at, mine = parting.alignment.at, parting.earlier.messages
    answered = has_reply(mine[at + len(gone) :][:1])
    return not answered or (mine[at - 1 : at] != () and mine[at - 1]["role"] in ("user", "tool", "function"))


def _without_more(parting: Parting, gone: tuple[Message, ...], new: tuple[Message, ...]) -> Shift | None:
    """Nothing comes again behind: a reply or a question that is replayed otherwise, or a summary of all that was said."""
    at, mine, theirs = parting.alignment.at, parting.earlier.messages, parting.later.messages
    was, now = mine[at], theirs[at]
    if summed_up := _summed_up(parting):
        return summed_up
    if at != len(mine) - 1 or len(theirs) == at + 1 or was["role"] != now["role"] or not similar(was, now):
        return None
    replayed = parting.replay and was["role"] == "assistant"
    asked = was["role"] in ("user", "tool", "function") and has_reply(theirs[at + 1 : at + 2])
    if replayed or (asked and _ends_alike(was["content"], now["content"])):
        return Shift(Change.EDITED, at, gone[:1] or (was,), new[:1] or (now,), 0)
    return None


def _summed_up(parting: Parting) -> Shift | None:
    """All that was said is replaced by one message that says that it is a summary, which makes it look like another session.

    A fork that goes back to the first question would ask something, and sum up nothing.
    """
    mine, theirs = parting.earlier.messages, parting.later.messages
    first = next((index for index, message in enumerate(theirs) if message["role"] not in HEAD_ROLES), len(theirs))
    if not 0 < len(theirs) - first <= 2 or len(mine) - first < _SUMMED_UP:
        return None
    if theirs[first]["role"] == "assistant" or not _is_summary(theirs[first]["content"]):
        return None
    at = parting.alignment.at
    if at != first or at == len(mine):
        return None
    return Shift(Change.COMPACTED, at, mine[at:], theirs[at:], 0, most=True)


def _is_summary(content: str) -> bool:
    return _SUMMARY.search(content[:_BEGINNING]) is not None and _REQUEST.match(content) is None


def similar(was: Message, now: Message) -> bool:
    """The same message with something changed in it."""
    if was["role"] != now["role"]:
        return False
    if was.get("tool_call_id") is not None or was.get("tool_calls"):
        return was.get("tool_call_id") == now.get("tool_call_id") and _call_names(was) == _call_names(now)
    mine, theirs = set(was["content"].split()), set(now["content"].split())
    if 4 * len(mine & theirs) >= 3 * max(len(mine), len(theirs), 1):
        return True
    if was["role"] == "assistant":  # two replies to one question begin and end alike often enough
        return False
    head, tail = _edges(was["content"], now["content"])
    return 2 * (head + tail) >= min(len(was["content"]), len(now["content"])) > 0


def _ends_alike(was: str, now: str) -> bool:
    """What stands behind the difference comes again."""
    _, tail = _edges(was, now)
    return tail >= _SOME or 2 * tail >= min(len(was), len(now))


def _edges(was: str, now: str) -> tuple[int, int]:
    """Characters that both begin with, and that both end with behind that."""
    head = common_length(was, now)
    room = min(len(was), len(now)) - head
    return head, common_length(was[::-1][:room], now[::-1][:room])


def _call_names(message: Message) -> list[str]:
    return [call["function"]["name"] for call in message.get("tool_calls", ())]


def _chars(messages: Iterable[Message]) -> int:
    return sum(len(m["content"]) + sum(len(str(call)) for call in m.get("tool_calls", ())) for m in messages)
