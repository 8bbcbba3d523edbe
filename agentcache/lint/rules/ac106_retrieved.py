"""AC106: retrieved documents stand before instructions that do not change."""

from __future__ import annotations

from collections.abc import Iterator

from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt
from agentcache.lint.rules.base import Cause, Observation, Rule
from agentcache.lint.texts.heads import head_strings
from agentcache.lint.texts.placeholders import find_placeholders
from agentcache.lint.texts.spans import MIN_SHARED, Span, common_suffix
from agentcache.lint.texts.spots import Spot, Words, find_spot
from agentcache.lint.texts.surroundings import Block, retrieved_block
from agentcache.lint.texts.suspicions import suspicion

_LONG = 80
"""Characters of what was retrieved; less is a value."""
_HELP = (
    "put retrieved text behind the instructions, next to the question in the newest message, and keep {path} the same"
)


def explain(parting: Parting) -> Cause | None:
    """The two requests part in retrieved text, and share the instructions behind it."""
    spot = find_spot(parting)
    if spot is None:
        return None
    was = retrieved_block(spot.before, spot.offset, spot.line_end)
    now = retrieved_block(spot.after, spot.offset, spot.line_end)
    if was is None and now is None:
        return None
    span = _differing(spot, was, now)
    if span.size < _LONG or not spot.comes_again(span):
        return None
    message = f"retrieved text in {spot.owner} stands before instructions that do not change"
    return spot.cause(span, Words("warning", message, _HELP.format(path=spot.path)), place="retrieved")


def _differing(spot: Spot, was: Block | None, now: Block | None) -> Span:
    """The documents as one piece: to the closing tags, or to the last difference."""
    ends = [
        None if block is None or block.end >= len(text) else block.end
        for block, text in ((was, spot.before), (now, spot.after))
    ]
    if ends[0] is None or ends[1] is None:
        behind = spot.parting.behind
        whole = Span(spot.offset, len(spot.before) - behind, len(spot.after) - behind)
        return whole if behind >= MIN_SHARED else spot.slot
    same = common_suffix(spot.before[spot.offset : ends[0]], spot.after[spot.offset : ends[1]])
    return Span(spot.offset, ends[0] - same, ends[1] - same)


def inspect(prompt: Prompt) -> Iterator[Observation]:
    """A placeholder for documents before the instructions of a prompt file."""
    if prompt.record.dialect != "prompt":
        return
    for string in head_strings(prompt):
        for slot in find_placeholders(string.value, "retrieved"):
            if len(string.value) - slot.end >= 2 * MIN_SHARED:
                name = string.value[slot.start : slot.end]
                message = f"{name} will be filled in with other documents for each question, before the instructions"
                words = Words("warning", message, _HELP.format(path=prompt.path(string.keys)))
                yield suspicion(string, slot.start, slot.end, words)
                return


RULE = Rule(
    code="AC106",
    name="retrieved-text-first",
    what="Documents or search results that are retrieved for each question stand in the system text before instructions.",
    why=(
        "Each question brings other documents, and they are long. Instructions, tools and conversation behind them are "
        "computed again every time, though only the documents changed."
    ),
    bad='{"role": "system", "content": "<documents> … </documents>\\nAnswer from the documents alone. Quote … "}',
    good=(
        '{"role": "system", "content": "Answer from the documents alone. Quote …"}\n'
        '{"role": "user", "content": "<documents> … </documents>\\nWhen may I return a pair of shoes?"}'
    ),
    fix_safety="Shown, never applied: it moves text that the model reads.",
    precedence=55,
    explain=explain,
    inspect=inspect,
)
