"""AC104: facts about the machine and the working tree before text that does not change."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentcache.lint.leaves import StringAt
from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt
from agentcache.lint.rules.base import Cause, Observation, Rule
from agentcache.lint.texts.heads import head_strings
from agentcache.lint.texts.placeholders import find_placeholders
from agentcache.lint.texts.spans import MIN_SHARED, Span, common_suffix
from agentcache.lint.texts.spots import Spot, Words, find_spot
from agentcache.lint.texts.surroundings import Block, environment_block, is_a_block
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
    span = _differing(spot)
    if span is None:
        return None
    if not spot.comes_again(span):
        return None
    message = f"facts about the machine in {spot.owner} change from request to request"
    return spot.cause(span, Words("warning", message, _HELP.format(path=spot.path)), place="environment")


def _differing(spot: Spot) -> Span | None:
    """What differs of the facts, as one piece.

    ::

        earlier:  Git status:\\n M a.py\\n|\\nYou are …                 a listing that is longer in one request ends in the
        later:    Git status:\\n M a.py\\n| M b.py\\n\\nYou are …        other just before the difference
    """
    texts = (spot.before, spot.after)
    blocks = [environment_block(text, spot.offset, spot.line_end) for text in texts]
    if not any(blocks):
        return None
    ends: list[int] = []
    for text, block, other in zip(texts, blocks, reversed(blocks), strict=True):
        if block is None:
            if not spot.offset or environment_block(text, spot.offset - 1, spot.line_end) is None:
                return None
            ends.append(spot.offset)
        else:
            line_end = len(spot.line_end) if other is None and text.startswith(spot.line_end, block.end) else 0
            ends.append(block.end + line_end)
    same = common_suffix(spot.before[spot.offset : ends[0]], spot.after[spot.offset : ends[1]])
    return Span(spot.offset, ends[0] - same, ends[1] - same)


def inspect(prompt: Prompt) -> Iterator[Observation]:
    """A block of facts about the machine that instructions follow."""
    for string in head_strings(prompt):
        value = string.value
        help = _HELP.format(path=prompt.path(string.keys))
        if (block := _block_of(string)) is not None and len(value) - block.end >= MIN_SHARED:
            message = f"facts about the machine in {owner_of(string)} will probably differ on the next one"
            yield suspicion(string, block.start, block.end, Words("info", message, help))
            return
        for slot in find_placeholders(value, "environment") if prompt.record.dialect == "prompt" else ():
            if len(value) - slot.end >= MIN_SHARED:
                message = f"{value[slot.start : slot.end]} will be filled in with other facts on each machine"
                yield suspicion(string, slot.start, slot.end, Words("info", message, help))
                return


def _block_of(string: StringAt) -> Block | None:
    """The first block of facts; a tool's text describes, and one line alone may be an instruction."""
    for found in _LIKELY.finditer(string.value) if string.role != "tools" else ():
        block = environment_block(string.value, found.end())
        if block is not None and is_a_block(string.value, block):
            return Block(max(string.value.rfind("\n", 0, found.end()) + 1, found.start()), block.end)
    return None


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
