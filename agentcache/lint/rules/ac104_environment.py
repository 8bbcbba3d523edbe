"""AC104: facts about the machine and the working tree before text that does not change."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt
from agentcache.lint.rules.base import Cause, Observation, Rule
from agentcache.lint.texts.heads import head_strings
from agentcache.lint.texts.placeholders import find_placeholders
from agentcache.lint.texts.spans import MIN_SHARED, Span, common_suffix
from agentcache.lint.texts.spots import Spot, Words, find_spot
from agentcache.lint.texts.surroundings import environment_block
from agentcache.lint.texts.suspicions import owner_of, suspicion

_LIKELY = re.compile(
    r"^[\W_]*(?:(?:current )?working directory|cwd|git status|(?:current )?branch|is (?:directory )?a git repo\w*|platform"
    r"|os version)\b[^\n:=]{0,30}[:=]|<(?:env|environment|environment_\w+|git_?status)>",
    re.IGNORECASE | re.MULTILINE,
)
_HELP = (
    "say facts about the machine and the working tree behind the instructions, best in the first user message, and keep "
    "{path} the same on every machine"
)


def explain(parting: Parting) -> Cause | None:
    """The two requests part in facts about the machine."""
    spot = find_spot(parting)
    if spot is None:
        return None
    was = environment_block(spot.before, spot.offset, spot.line_end)
    now = environment_block(spot.after, spot.offset, spot.line_end)
    if was is None or now is None:
        return None
    span = _differing(spot, was.end, now.end)
    if not spot.comes_again(span):
        return None
    message = f"facts about the machine in {spot.owner} change from request to request"
    return spot.cause(span, Words("warning", message, _HELP.format(path=spot.path)), place="environment")


def _differing(spot: Spot, before_end: int, after_end: int) -> Span:
    """What differs of the block, as one piece."""
    same = common_suffix(spot.before[spot.offset : before_end], spot.after[spot.offset : after_end])
    return Span(spot.offset, before_end - same, after_end - same)


def inspect(prompt: Prompt) -> Iterator[Observation]:
    """A block of facts about the machine that instructions follow."""
    for string in head_strings(prompt):
        if string.role == "tools":
            continue
        value = string.value
        help = _HELP.format(path=prompt.path(string.keys))
        if (found := _LIKELY.search(value)) is not None:
            start = max(value.rfind("\n", 0, found.end()) + 1, found.start())
            block = environment_block(value, found.end())
            if block is not None and len(value) - block.end >= MIN_SHARED:
                message = f"facts about the machine in {owner_of(string)} will probably differ on the next one"
                yield suspicion(string, start, block.end, Words("info", message, help))
                return
        if prompt.record.dialect == "prompt":
            for slot in find_placeholders(value, "environment"):
                if len(value) - slot.end >= MIN_SHARED:
                    message = f"{value[slot.start : slot.end]} will be filled in with other facts on each machine"
                    yield suspicion(string, slot.start, slot.end, Words("info", message, help))
                    return


RULE = Rule(
    code="AC104",
    name="environment-block",
    what=(
        "Facts about the machine or the working tree (folder, platform, branch, git status) stand in the system text before "
        "text that is the same everywhere."
    ),
    why=(
        "They differ from machine to machine and from start to start, and git status from turn to turn. Everything behind "
        "them is computed again, though it is the part that all have in common. In a single request such a block is only "
        "suspected, and a second request with the same facts clears it."
    ),
    bad=(
        '{"role": "system", "content": "<env>\\nWorking directory: /home/ann/shop\\nBranch: fix-cart\\n</env>\\n'
        'You are a careful engineer. …"}'
    ),
    good=(
        '{"role": "system", "content": "You are a careful engineer. …"}\n'
        '{"role": "user", "content": "<env>\\nWorking directory: /home/ann/shop\\n</env>\\nWhy does the build fail?"}'
    ),
    fix_safety="Shown, never applied: it moves text that the model reads.",
    precedence=45,
    explain=explain,
    inspect=inspect,
)
