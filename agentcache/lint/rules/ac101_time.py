"""AC101: a date or a time of day in a part of the prompt that other requests repeat."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator

from xxhash import xxh3_64_intdigest

from agentcache.lint.finding import Severity
from agentcache.lint.leaves import Leaf, strings_of
from agentcache.lint.parting import Parting, excerpt
from agentcache.lint.prompt import SHARED_ROLES, Prompt
from agentcache.lint.rules.base import Cause, Observation, Rule, TextEdit
from agentcache.lint.times import Granularity, TimeText, find_times, mask_times

_NOW = re.compile(
    r"""(?: \b (?: now | today | current(?:ly)? | timestamp | as\ of | it\ is | it's
             | (?:local|system|server|session|utc) [ _] (?:date|time) ) \b
          | ^ \W* (?: date | time | datetime ) \b )
        (?: \W | \b(?:date|time|day|is|and|the|local|utc|at|s)\b ){0,12} $""",
    re.IGNORECASE | re.VERBOSE,
)
"""What stands before a time that says when the request was made."""
_EXAMPLE = re.compile(
    r"\b(?:e\.g\.|i\.e\.|examples?|such as|format|like|iso ?8601|cut-?off|since|until|before|after)\b", re.IGNORECASE
)
"""What stands before a time that is only talked about."""


def explain(parting: Parting) -> Cause | None:
    """The two requests part inside a time, in a string that should have been the same."""
    leaf = parting.leaf
    if leaf is None or parting.earlier_leaf is None or not _should_be_equal(parting, leaf):
        return None
    before, after = parting.earlier.text_of(parting.earlier_leaf), parting.later.text_of(leaf)
    offset = parting.char - leaf.start
    was, now = _time_at(before, offset), _time_at(after, offset)
    if was is None or now is None or was.start != now.start or was.kind != now.kind:
        return None
    granularity = max(was.granularity, now.granularity)
    return Cause(
        place=_place(leaf, after[: now.start], parting.session),
        edit=TextEdit(leaf, now.start, now.end, before[was.start : was.end]),
        char=offset,
        severity=_severity(granularity),
        before=excerpt(before, was.start, was.end),
        after=excerpt(after, now.start, now.end),
        message=f"a time to {granularity.words} in {_owner(leaf)} changes from request to request",
        help=_HELP.format(path=parting.later.path(leaf.keys)),
    )


def inspect(prompt: Prompt) -> Iterator[Observation]:
    """The first time in a shared part that reads as the time of the request; everything behind it depends on it."""
    shared = (string.value for string in strings_of(prompt.record.body) if string.role in SHARED_ROLES)
    if not any(True for value in shared for _ in find_times(value)):
        return  # finding where the strings were rendered to is the dear part
    for leaf in prompt.leaves:
        if leaf.role not in SHARED_ROLES:
            continue
        text = prompt.text_of(leaf)
        for time in find_times(text):
            if _reads_as_now(text, time, leaf):
                yield Observation(
                    place=_place(leaf, text[: time.start], None),
                    value=text[time.start : time.end],
                    keys=leaf.keys,
                    char=prompt.string_offset(leaf, time.start),
                    severity="info" if time.granularity == Granularity.DAY else "warning",
                    after=excerpt(text, time.start, time.end),
                    message=f"a time to {time.granularity.words} in {_owner(leaf)} will probably differ in the next request",
                    help=_HELP.format(path=prompt.path(leaf.keys)),
                )
                return


_HELP = (
    "say the time at the end of the newest message, or fetch it with a tool, and keep {path} the same for every request"
)


def _should_be_equal(parting: Parting, leaf: Leaf) -> bool:
    """Shared parts always; the history of a session too, but not the message that both requests end with."""
    if leaf.role in SHARED_ROLES:
        return True
    if parting.session is None or leaf.message is None or parting.earlier_leaf is None:
        return False
    last = len(parting.earlier.record.body["messages"]) - 1
    if leaf.message == last == len(parting.later.record.body["messages"]) - 1:
        return False
    return mask_times(parting.earlier.text_of(parting.earlier_leaf)) == mask_times(parting.later.text_of(leaf))


def _time_at(text: str, offset: int) -> TimeText | None:
    for time in find_times(text):
        if time.start > offset:
            return None
        if offset <= time.end:
            return time
    return None


def _reads_as_now(text: str, time: TimeText, leaf: Leaf) -> bool:
    line = text[text.rfind("\n", 0, time.start) + 1 : time.start][-60:]
    if _EXAMPLE.search(line):
        return False
    if _NOW.search(line):
        return True
    opens_line = not line.strip(" \t[(<#*-")
    return time.complete and time.granularity >= Granularity.MINUTE and opens_line and leaf.role != "tools"


def _place(leaf: Leaf, before: str, session: int | None) -> Hashable:
    scope = None if leaf.role in SHARED_ROLES else session
    return leaf.keys, scope, xxh3_64_intdigest(mask_times(before).encode("utf-8", "surrogatepass"))


def _severity(granularity: Granularity) -> Severity:
    return "error" if granularity >= Granularity.MINUTE else "warning"


def _owner(leaf: Leaf) -> str:
    if leaf.role == "tools":
        return "a tool's text"
    return "the system text" if leaf.role in SHARED_ROLES else f"the replayed {leaf.role} message"


RULE = Rule(
    code="AC101",
    name="volatile-time",
    what="A date or a time of day in the system text, a tool or a replayed message differs between two requests.",
    why=(
        "The cache reuses a prompt up to the first token that differs. A clock in a shared part makes everything behind it "
        "new each time it ticks: each second, each minute, or (less dear) each day. A single request cannot show that it "
        "ticks, so there it is only suspected, and a second request with the same text clears it."
    ),
    bad='{"role": "system", "content": "It is 2026-05-04 10:31:47. You are a careful engineer. …"}',
    good=(
        '{"role": "system", "content": "You are a careful engineer. …"}\n'
        '{"role": "user", "content": "Why does the build fail?\\n\\nNow: 2026-05-04 10:31"}'
    ),
    fix_safety=(
        "Shown, never applied: moving the time changes what the model reads where. Replay old messages with their old time."
    ),
    explain=explain,
    inspect=inspect,
)
