"""Messages of one session that are sent again with something else filled in: a stamp that is not replayed as it was said."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentcache.chat.text import common_length
from agentcache.lint.finding import Severity
from agentcache.lint.leaves import replace_at, string_at
from agentcache.lint.parting import Parting
from agentcache.lint.records import Body, Keys
from agentcache.lint.rules.base import BodyEdit, Cause
from agentcache.lint.texts.forms import find_ids, id_at, is_of_one_run, mask_slots, time_at
from agentcache.lint.texts.spans import common_suffix
from agentcache.lint.texts.spots import first_said, follows, shown
from agentcache.lint.texts.stamps import reads_as_now
from agentcache.lint.times import Granularity, find_times

Kind = Literal["time", "id", "number"]
_FRAME = 60
"""Characters beside a time or an id that still belong to the stamp: ``Current time:``, brackets, tags."""
_COUNTER = re.compile(r"\s*(?:[\[(<{][^\n]*\d[^\n]*[\])>}]|[A-Za-z][\w ]{1,40}[:=][^\n]*\d[^\n]*)\s*\Z")
"""A bracket, or a line of its own with a label, that holds a number."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A message that is sent again, but for what is filled in.

    Attributes:
        kind: what is filled in.
        change: it has another value, is left out, or is put in.
        at: first character that differs.
        body: the later request with all such messages as they were.
        granularity: of a time.
    """

    keys: Keys
    role: str
    kind: Kind
    change: Literal["another", "left out", "put in"]
    before: str
    after: str
    at: int
    body: Body
    granularity: Granularity | None = None

    def cause(self, severity: Severity, message: str, help: str) -> Cause:
        start, tail = self.at, common_suffix(self.before[self.at :], self.after[self.at :])
        return Cause(
            place=("replay", self.role, self.kind),
            edit=BodyEdit(self.body, self.keys),
            char=self.at,
            severity=severity,
            before=shown(self.before, start, len(self.before) - tail),
            after=shown(self.after, start, len(self.after) - tail),
            message=message,
            help=help,
        )

    @property
    def verb(self) -> str:
        words = {"another": "comes with another value", "left out": "is left out", "put in": "is put in"}
        return words[self.change]


def find_replay(parting: Parting, kind: Kind) -> Replay | None:
    """The first message in which they part, when it is the same but for something of ``kind``."""
    if not follows(parting):
        return None
    aligned = parting.alignment
    if aligned.appends_only or aligned.gone != aligned.new or aligned.at < first_said(parting.later):
        return None
    leaves = [leaf for leaf in (parting.earlier_leaf, parting.later_leaf) if leaf is not None]
    if leaves and all(leaf.message != aligned.at for leaf in leaves):
        return None
    if not aligned.again and aligned.at != len(parting.earlier.messages) - 1:
        return None  # nothing shows that it is the same message
    known = bool(aligned.again) or parting.later.record.session is not None
    first: Replay | None = None
    body = parting.later.record.body
    for index in range(aligned.at, min(len(parting.earlier.messages), len(parting.later.messages) - 1)):
        found = _compare(parting, index, kind, known=known or first is not None)
        if found is None:
            if first is None:
                return None
            continue
        first = first or found
        body = replace_at(body, found.keys, found.before)
    if first is None:
        return None
    return replace(first, body=body)


def _compare(parting: Parting, index: int, kind: Kind, *, known: bool) -> Replay | None:
    """
    Args:
        known: it is known to be the same message; otherwise it may be another one that says nearly the same.
    """
    mine, theirs = parting.earlier.record.body, parting.later.record.body
    message, again = mine["messages"][index], theirs["messages"][index]
    if message["role"] != again["role"]:
        return None
    pair = _texts(message.get("content"), again.get("content"))
    if pair is None:
        return None
    keys: Keys = ("messages", index, "content", *pair)
    before, after = string_at(mine, keys), string_at(theirs, keys)
    found = _READERS[kind](before, after)
    if found is None:
        return None
    change, granularity = found
    at = common_length(before, after)
    if not known and change == "another" and not _is_a_stamp(after, at, kind):
        return None
    return Replay(keys, message["role"], kind, change, before, after, at, theirs, granularity)


def _is_a_stamp(text: str, at: int, kind: Kind) -> bool:
    """What stands at ``at`` says when, or in which run, the message was sent; rather than being what it is about."""
    if kind == "time":
        time = time_at(text, at)
        return time is not None and reads_as_now(text, time)
    found = id_at(text, at)
    return kind == "id" and found is not None and is_of_one_run(text[max(0, found.start - 40) : found.start])


def _texts(mine: Any, theirs: Any) -> Keys | None:
    """Keys of the only text in which two contents differ; ``None`` where they differ otherwise or not at all."""
    if mine == theirs:
        return None
    if isinstance(mine, str) and isinstance(theirs, str):
        return ()
    if not isinstance(mine, list) or not isinstance(theirs, list) or len(mine) != len(theirs):
        return None
    places = [place for place, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b]
    if len(places) != 1:
        return None
    a, b = mine[places[0]], theirs[places[0]]
    both = all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in (a, b))
    return (places[0], "text") if both and {**a, "text": ""} == {**b, "text": ""} else None


_Found = tuple[Literal["another", "left out", "put in"], "Granularity | None"]


def _time(before: str, after: str) -> _Found | None:
    at = common_length(before, after)
    was, now = time_at(before, at), time_at(after, at)
    if was is not None and now is not None and was.start == now.start and mask_slots(before) == mask_slots(after):
        return "another", max(was.granularity, now.granularity)
    change, stamp = _stamp(before, after)
    times = list(find_times(stamp))
    if change is None or not times or len(stamp) - sum(time.end - time.start for time in times) > _FRAME:
        return None
    return change, max(time.granularity for time in times)


def _id(before: str, after: str) -> _Found | None:
    at = common_length(before, after)
    was, now = id_at(before, at), id_at(after, at)
    if was is not None and now is not None and was.start == now.start and mask_slots(before) == mask_slots(after):
        return "another", None
    change, stamp = _stamp(before, after)
    ids = list(find_ids(stamp))
    if change is None or not ids or len(stamp) - sum(found.end - found.start for found in ids) > _FRAME:
        return None
    return change, None


def _number(before: str, after: str) -> _Found | None:
    if re.sub(r"\d+", "#", before) == re.sub(r"\d+", "#", after):
        return "another", None
    change, stamp = _stamp(before, after)
    if change is None or len(stamp) > 2 * _FRAME or not _COUNTER.match(stamp):
        return None
    return change, None


_READERS: dict[Kind, Callable[[str, str], _Found | None]] = {"time": _time, "id": _id, "number": _number}


def _stamp(before: str, after: str) -> tuple[Literal["left out", "put in"] | None, str]:
    """What only one of them has, when all else is the same and there is something else."""
    at = common_length(before, after)
    same = common_suffix(before[at:], after[at:])
    gone, new = before[at : len(before) - same], after[at : len(after) - same]
    if bool(gone.strip()) == bool(new.strip()) or not (before[:at] + before[len(before) - same :]).strip():
        return None, ""
    return ("left out", gone) if gone.strip() else ("put in", new)
