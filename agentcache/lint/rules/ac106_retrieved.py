"""AC106: retrieved documents stand before instructions that do not change."""

from __future__ import annotations

from collections.abc import Iterator

from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt
from agentcache.lint.rules.base import Cause, Observation, Rule
from agentcache.lint.texts.filled_in import is_retrieved
from agentcache.lint.texts.heads import head_strings
from agentcache.lint.texts.placeholders import find_placeholders
from agentcache.lint.texts.spans import MIN_SHARED, Span, common_suffix
from agentcache.lint.texts.spots import Spot, Words, find_spot
from agentcache.lint.texts.surroundings import retrieved_block, starts_document
from agentcache.lint.texts.suspicions import suspicion

_HELP = (
    "put retrieved text behind the instructions, next to the question in the newest message, and keep {path} the same"
)


def explain(parting: Parting) -> Cause | None:
    """The two requests part in retrieved text, and share the instructions behind it."""
    spot = find_spot(parting)
    if spot is None or not is_retrieved(spot):
        return None
    span = _tagged(spot) or _to_last_difference(spot)
    if span is None:
        return None
    message = f"retrieved text in {spot.owner} stands before instructions that do not change"
    return spot.cause(span, Words("warning", message, _HELP.format(path=spot.path)), place="retrieved")


def _tagged(spot: Spot) -> Span | None:
    """The documents to their closing tags, when both have them and something is the same behind."""
    was, now = (retrieved_block(text, spot.offset, spot.line_end) for text in (spot.before, spot.after))
    if was is None or now is None or was.end >= len(spot.before) or now.end >= len(spot.after):
        return None
    same = common_suffix(spot.before[spot.offset : was.end], spot.after[spot.offset : now.end])
    whole = Span(spot.offset, was.end, now.end)  # documents that both have are no instructions
    return Span(spot.offset, was.end - same, now.end - same) if spot.comes_again(whole) else None


def _to_last_difference(spot: Spot) -> Span | None:
    """The documents to the last difference, when more than a document that both have is the same behind."""
    behind = spot.parting.behind
    span = Span(spot.offset, len(spot.before) - behind, len(spot.after) - behind)
    block = retrieved_block(spot.after, spot.offset, spot.line_end)
    end = span.after_end if block is None or block.end == len(spot.after) else max(span.after_end, block.end)
    own_lines = spot.after[end:].split(spot.line_end)[1:]
    while own_lines and starts_document(own_lines[0]):
        own_lines.pop(0)
    if sum(map(len, own_lines)) >= MIN_SHARED or spot.goes_on_behind:
        return span
    return None


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
