"""AC103: something short that is filled in between texts that are the same, found by comparing them."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import Cause, Rule
from agentcache.lint.texts.filled_in import are_values, is_phrase, is_retrieved, stands_first
from agentcache.lint.texts.replays import find_replay
from agentcache.lint.texts.spots import Spot, Words, find_spot
from agentcache.lint.texts.surroundings import is_version

_SHORT = 120
"""Characters of a slot; what is longer is a text of its own when the requests are of different sessions."""
_HELP = "move what varies behind everything that does not: to the end of the newest message, or at least to the end of {path}"


def explain(parting: Parting) -> Cause | None:
    """The two requests part in one place of a string that is the same before and behind it."""
    spot = find_spot(parting)
    if spot is None:
        return _explain_replay(parting)
    if is_retrieved(spot):
        return None
    span = spot.slot
    if spot.same_session:
        if is_version(spot.before, span.start, span.before_end) and is_version(spot.after, span.start, span.after_end):
            return None
    elif span.size > _SHORT or not are_values(spot, span) or (is_phrase(spot, span) and stands_first(spot, span)):
        return None
    if not _is_the_same_text(spot) or not spot.comes_again(span):
        return None
    message = f"something else stands in one place of {spot.owner} from request to request"
    return spot.cause(span, Words("error", message, _HELP.format(path=spot.path)))


def _is_the_same_text(spot: Spot) -> bool:
    """Most of the longer string is in the other one as well."""
    same = spot.slot.start + spot.text_behind(spot.slot)
    return 2 * same >= max(len(spot.before), len(spot.after))


def _explain_replay(parting: Parting) -> Cause | None:
    replay = find_replay(parting, "number")
    if replay is None:
        return None
    message = f"a number {replay.verb} when a {replay.role} message is sent again"
    return replay.cause("error", message, "send old messages again as they were sent, with the number that they had")


RULE = Rule(
    code="AC103",
    name="varying-slot",
    what=(
        "Two requests have the same system text or tool, but for something short that differs between them: a counter, a "
        "nonce, a name, a list of facts. It is found by comparing the requests, whatever it looks like."
    ),
    why=(
        "Whatever is filled in between texts that never change splits them: the part behind it is computed again for each "
        "value. The further to the front it stands, the more that is. A number that a replayed message carries only while "
        "it is the newest one has the same effect."
    ),
    bad='{"role": "system", "content": "You have used 12 of 40 tool calls. You are a careful engineer. …"}',
    good='{"role": "user", "content": "Why does the build fail?\\n\\n(12 of 40 tool calls are used)"}',
    fix_safety="Shown, never applied: it says what the model reads where.",
    precedence=50,
    explain=explain,
)
