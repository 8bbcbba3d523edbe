"""AC101, AC102, AC103 and AC204 to AC206: two prompts that are the same but for what is filled in at one place."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from agentcache.chat.text import common_length
from agentcache.lint.finding import Finding, Severity
from agentcache.lint.parting import excerpt
from agentcache.lint.times import Granularity, TimeText, find_times
from agentcache.server.findings.meeting import Meeting, meet
from agentcache.server.findings.prompt_text import Branch, PartedPrompt
from agentcache.server.findings.spot import lost

_LEAD = 64
"""Characters before the parting that a time or an id may begin in."""
_BEHIND = 24
"""Tokens behind the slot that it may end in."""
_LONGEST = 256
_WORTH = 32
"""Tokens that are equal behind a slot: more than templates write between two messages and a short word in each."""
_ID = re.compile(
    r"""(?<![\w-]) (?:
      (?P<uuid> [0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12} )
    | (?P<path> (?:/tmp|/var/folders|/private/tmp|/run) / [\w./-]+ )
    | (?P<named> [A-Za-z]{2,12} [_-] (?=[A-Za-z0-9]*\d) [A-Za-z0-9]{6,} )
    | (?P<mixed> (?=[A-Za-z]*\d) (?=\d*[A-Za-z]) [A-Za-z0-9]{7,} )
    | (?P<number> \d{5,} )
    ) (?![\w])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Slot:
    """A place at which two prompts differ, and what is equal around it.

    ::

        text   [ lead: equal ][ was | now ][ behind: equal ]
                      ^ start: where the texts differ first

    Attributes:
        char: the prompt's character at which ``was_text`` and ``now_text`` begin.
        lead: characters of them before the slot.
        was, now: what is filled in.
    """

    branch: Branch
    meeting: Meeting
    char: int
    lead: int
    was_text: str
    now_text: str
    was: str
    now: str

    @property
    def start(self) -> int:
        return common_length(self.was_text, self.now_text)

    @property
    def end(self) -> int:
        """The prompt's first character behind what is filled in."""
        return self.char + self.lead + len(self.now)


def find_slot(parted: PartedPrompt) -> Slot | None:
    """The slot in which the prompt parted from the branch that is most like it; ``None`` where nothing is equal again."""
    met = ((branch, meet(branch.was, branch.now, _WORTH)) for branch in parted.branches)
    found = [(meeting, branch) for branch, meeting in met if meeting is not None]
    slots = [entry for entry in found if entry[0].is_a_slot and max(entry[0].was, entry[0].now) <= _LONGEST]
    if not slots:
        return None
    meeting, branch = max(slots, key=lambda entry: (entry[1].at, entry[0].run))
    place = parted.character(branch.at)
    start = max(place - _LEAD, parted.text.rfind("\n", 0, place) + 1)
    lead = parted.text[start:place]
    return Slot(
        branch, meeting, start, len(lead),
        was_text=lead + parted.decode(branch.was, meeting.was + _BEHIND),
        now_text=lead + parted.decode(branch.now, meeting.now + _BEHIND),
        was=parted.decode(branch.was, meeting.was),
        now=parted.decode(branch.now, meeting.now),
    )  # fmt: skip


def slot_finding(parted: PartedPrompt, slot: Slot, owner: str) -> Finding:
    """What is filled in.

    Args:
        owner: whose text the slot is in, for people.
    """
    if (time := _times(slot)) is not None:
        was, now = time
        finest = max(was.granularity, now.granularity)
        fields = _fields(parted, slot, "AC101", *_shown(slot, was, now))
        message = f"a time to {finest.words} in {owner} changes from request to request"
        return Finding(**fields, severity=_severity(finest), message=message)
    shown = _around(slot)
    if (spelling := spelled_apart(slot.was, slot.now)) is not None:
        fields = _fields(parted, slot, spelling[0], *shown)
        message = f"{owner} differs from an earlier request's in {spelling[1]} alone"
        return Finding(**fields, severity="warning", message=message)
    if (kind := _ids(slot)) is not None:
        message = f"{kind} in {owner} changes from request to request"
        return Finding(**_fields(parted, slot, "AC102", *shown), severity="error", message=message)
    message = f"{owner} is an earlier request's with something else in one place"
    return Finding(**_fields(parted, slot, "AC103", *shown), severity="warning", message=message)


def spelled_apart(was: str, now: str) -> tuple[str, str] | None:
    """The code and the words for two texts that say the same in another spelling."""
    if "".join(was.split()) == "".join(now.split()):
        return "AC204", "white space"
    if unicodedata.normalize("NFC", was) == unicodedata.normalize("NFC", now):
        return "AC205", "its Unicode form"
    if "\\" in was + now and _unescaped(was) == _unescaped(now):
        return "AC206", "the escapes of its JSON"
    return None


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


def _fields(parted: PartedPrompt, slot: Slot, code: str, before: str, after: str) -> dict[str, Any]:
    spot = parted.spot(slot.branch.at, slot.char + slot.start)
    return {**parted.basis.of(code, spot), "before": before, "after": after, **lost(slot.meeting.run, "estimate")}


def _around(slot: Slot) -> tuple[str, str]:
    start = slot.start
    ends = (max(start, slot.lead + len(slot.was)), max(start, slot.lead + len(slot.now)))
    return excerpt(slot.was_text, start, ends[0]), excerpt(slot.now_text, start, ends[1])


def _shown(slot: Slot, was: TimeText, now: TimeText) -> tuple[str, str]:
    return excerpt(slot.was_text, was.start, was.end), excerpt(slot.now_text, now.start, now.end)


def _times(slot: Slot) -> tuple[TimeText, TimeText] | None:
    was, now = _time_at(slot.was_text, slot.start), _time_at(slot.now_text, slot.start)
    if was is None or now is None or was.start != now.start or was.kind != now.kind:
        return None
    return was, now


def _time_at(text: str, offset: int) -> TimeText | None:
    near = text[: offset + _LEAD]
    return next((time for time in find_times(near) if time.start <= offset <= time.end), None)


def _severity(granularity: Granularity) -> Severity:
    if granularity is Granularity.DAY:
        return "info"
    return "error" if granularity >= Granularity.MINUTE else "warning"


def _ids(slot: Slot) -> str | None:
    was, now = _id_at(slot.was_text, slot.start), _id_at(slot.now_text, slot.start)
    if was is None or now is None or was.start() != now.start() or was.lastgroup != now.lastgroup:
        return None
    return "a temporary path" if was.lastgroup == "path" else "an id"


def _id_at(text: str, offset: int) -> re.Match[str] | None:
    return next((found for found in _ID.finditer(text) if found.start() <= offset <= found.end()), None)
