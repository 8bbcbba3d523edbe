"""AC101: a date or a time of day in a part of the prompt that other requests repeat."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentcache.lint.finding import Severity
from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt
from agentcache.lint.rules.base import Cause, Observation, Rule
from agentcache.lint.texts.filled_in import goes_on
from agentcache.lint.texts.forms import time_at
from agentcache.lint.texts.heads import head_strings
from agentcache.lint.texts.placeholders import find_placeholders
from agentcache.lint.texts.replays import find_replay
from agentcache.lint.texts.spans import Span
from agentcache.lint.texts.spots import Words, find_spot
from agentcache.lint.texts.stamps import reads_as_now
from agentcache.lint.texts.suspicions import near, owner_of, suspicion
from agentcache.lint.times import Granularity, find_times

_SIGN = re.compile(r"\d|day\b")
_HELP = (
    "say the time at the end of the newest message, or fetch it with a tool, and keep {path} the same for every request"
)
_REPLAY_HELP = (
    "send old messages again as they were sent, each with its own time, and give the time in the newest message only"
)


def explain(parting: Parting) -> Cause | None:
    """The two requests part inside a time, in a string that should have been the same."""
    spot = find_spot(parting)
    if spot is None:
        return _explain_replay(parting)
    was, now = time_at(spot.before, spot.offset), time_at(spot.after, spot.offset)
    if was is None or now is None or was.start != now.start or was.kind != now.kind:
        return None
    span = Span(now.start, was.end, now.end)
    if not goes_on(spot, was.end, now.end) or not spot.comes_again(span):
        return None
    granularity = max(was.granularity, now.granularity)
    message = f"a time to {granularity.words} in {spot.owner} changes from request to request"
    return spot.cause(span, Words(_severity(granularity), message, _HELP.format(path=spot.path)))


def _explain_replay(parting: Parting) -> Cause | None:
    replay = find_replay(parting, "time")
    if replay is None or replay.granularity is None:
        return None
    message = f"a time to {replay.granularity.words} {replay.verb} when a {replay.role} message is sent again"
    return replay.cause(_severity(replay.granularity), message, _REPLAY_HELP)


def inspect(prompt: Prompt) -> Iterator[Observation]:
    """The first time in a shared part that reads as the time of the request; everything behind it depends on it."""
    for string in head_strings(prompt):
        value = string.value
        help = _HELP.format(path=prompt.path(string.keys))
        for time in (time for start, end in near(value, _SIGN) for time in find_times(value, start, end)):
            if reads_as_now(value, time, bare=string.role != "tools"):
                day = time.granularity == Granularity.DAY
                message = (
                    f"a time to {time.granularity.words} in {owner_of(string)} will probably differ in the next request"
                )
                yield suspicion(string, time.start, time.end, Words("info" if day else "warning", message, help))
                return
        if prompt.record.dialect == "prompt" and (slot := next(find_placeholders(value, "time"), None)) is not None:
            message = f"{value[slot.start : slot.end]} will be filled in with another time for each request"
            yield suspicion(string, slot.start, slot.end, Words("warning", message, help))
            return


def _severity(granularity: Granularity) -> Severity:
    return "error" if granularity >= Granularity.MINUTE else "warning"


RULE = Rule(
    code="AC101",
    name="volatile-time",
    what="A date or a time of day in the system text, a tool or a replayed message differs between two requests.",
    why=(
        "The cache reuses a prompt up to the first token that differs. A clock in a shared part makes everything behind it "
        "new each time it ticks: each second, each minute, or (less dear) each day. A stamp that a message carries only "
        "while it is the newest one has the same effect on the next turn. A single request cannot show that a time moves on, "
        "so there it is only suspected, and a second request with the same text clears it."
    ),
    bad='{"role": "system", "content": "It is 2026-05-04 10:31:47. You are a careful engineer. …"}',
    good=(
        '{"role": "system", "content": "You are a careful engineer. …"}\n'
        '{"role": "user", "content": "Why does the build fail?\\n\\nNow: 2026-05-04 10:31"}'
    ),
    fix_safety=(
        "Shown, never applied: moving the time changes what the model reads where. Replay old messages with their old time."
    ),
    precedence=40,
    explain=explain,
    inspect=inspect,
)
