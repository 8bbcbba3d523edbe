"""AC102: an id or a temporary path in a part of the prompt that other requests repeat."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt
from agentcache.lint.rules.base import Cause, Observation, Rule
from agentcache.lint.texts.filled_in import goes_on
from agentcache.lint.texts.forms import IdText, find_ids, id_at, is_of_one_run
from agentcache.lint.texts.heads import head_strings
from agentcache.lint.texts.placeholders import find_placeholders
from agentcache.lint.texts.replays import find_replay
from agentcache.lint.texts.spans import Span
from agentcache.lint.texts.spots import Spot, Words, find_spot
from agentcache.lint.texts.surroundings import environment_block
from agentcache.lint.texts.suspicions import near, owner_of, suspicion

_SIGN = re.compile(r"\d|/tmp/|[\\/]Temp[\\/]|/var/folders/")
_FRESH_FOLDER = re.compile(
    r"""[\\/] (?: tmp[\w.-]{0,3}[a-z0-9_]{6,} | tmp\.\w{6,} | [\w.-]*[0-9a-f]{8}-[0-9a-f]{4}-[\w-]*
          | [\w-]*-(?=[a-z]*\d)[a-z0-9]{6,} ) (?:[\\/]|$)""",
    re.VERBOSE,
)
"""A folder whose name was drawn for one run, rather than one that always has this name."""
_HELP = (
    "keep ids of runs, requests and temporary folders out of {path}: say them in the newest message, or under a name that "
    "stays the same"
)


def explain(parting: Parting) -> Cause | None:
    """The two requests part inside an id, in a string that should have been the same."""
    spot = find_spot(parting)
    if spot is None:
        return _explain_replay(parting)
    was, now = id_at(spot.before, spot.offset), id_at(spot.after, spot.offset)
    if was is None or now is None or was.start != now.start or was.kind != now.kind or _is_a_commit(spot, now):
        return None
    span = Span(now.start, was.end, now.end)
    if not goes_on(spot, was.end, now.end) or not spot.comes_again(span):
        return None
    message = f"{now.words} in {spot.owner} changes from request to request"
    return spot.cause(span, Words("error", message, _HELP.format(path=spot.path)))


def _is_a_commit(spot: Spot, now: IdText) -> bool:
    """The state of a working tree is a fact about the machine."""
    return now.form == "hex" and environment_block(spot.after, spot.offset, spot.line_end) is not None


def _explain_replay(parting: Parting) -> Cause | None:
    replay = find_replay(parting, "id")
    if replay is None:
        return None
    message = f"an id {replay.verb} when a {replay.role} message is sent again"
    return replay.cause("error", message, "send old messages again as they were sent, each with its own id")


def inspect(prompt: Prompt) -> Iterator[Observation]:
    """The first id of this run in a shared part."""
    for string in head_strings(prompt):
        value = string.value
        help = _HELP.format(path=prompt.path(string.keys))
        for found in (found for start, end in near(value, _SIGN) for found in find_ids(value, start, end)):
            if _reads_as_fresh(value, found):
                message = f"{found.words} in {owner_of(string)} will probably differ in the next request"
                yield suspicion(string, found.start, found.end, Words("warning", message, help))
                return
        if prompt.record.dialect == "prompt" and (slot := next(find_placeholders(value, "id"), None)) is not None:
            message = f"{value[slot.start : slot.end]} will be filled in with another id for each run"
            yield suspicion(string, slot.start, slot.end, Words("warning", message, help))
            return


def _reads_as_fresh(text: str, found: IdText) -> bool:
    line = text[text.rfind("\n", 0, found.start) + 1 : found.start][-60:]
    if re.search(r"\b(?:e\.g\.|i\.e\.|examples?|such as|format|like)\b", line, re.IGNORECASE):
        return False
    if found.kind == "path":
        return _FRESH_FOLDER.search(text, found.start, found.end) is not None
    return is_of_one_run(line)


RULE = Rule(
    code="AC102",
    name="volatile-id",
    what="An id or a temporary path in the system text, a tool or a replayed message differs between two requests.",
    why=(
        "An id that is drawn for each run, session or request makes everything behind it new: tools, instructions, and "
        "the whole conversation. A scratch folder that is named after its session does the same, often in the middle of an "
        "otherwise constant text. In a single request it is only suspected, and a second request with the same id clears it."
    ),
    bad='{"role": "system", "content": "Session id: 8c1f2d3e-90ab-4c5d-8e7f-0123456789ab\\nYou are a careful engineer. …"}',
    good='{"role": "system", "content": "You are a careful engineer. Your scratch folder is $SCRATCH. …"}',
    fix_safety="Shown, never applied: the model may need the id. Give it in the newest message, or under a name that stays.",
    precedence=40,
    explain=explain,
    inspect=inspect,
)
