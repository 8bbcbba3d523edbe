"""AC105: what is particular to a user or a task stands before what all requests share."""

from __future__ import annotations

from collections.abc import Iterator

from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt
from agentcache.lint.rules.base import Cause, Observation, Rule
from agentcache.lint.texts.filled_in import are_values, is_retrieved, stands_first
from agentcache.lint.texts.heads import head_strings
from agentcache.lint.texts.placeholders import find_placeholders
from agentcache.lint.texts.spans import MIN_SHARED, Span
from agentcache.lint.texts.spots import Spot, Words, find_spot
from agentcache.lint.texts.suspicions import suspicion

_BEGINNING = 240
"""Characters: what varies within so few of the beginning stands first."""
_MUCH = 256
"""Characters that first messages of different sessions must have in common behind the part that varies."""
_HELP = "put what all requests share first in {path}, and what is particular to a user or a task behind it"


def explain(parting: Parting) -> Cause | None:
    """Requests of two sessions part in a text of their own, and share what follows."""
    spot = find_spot(parting, opening=True)
    if spot is None or spot.same_session or is_retrieved(spot):
        return None
    if spot.where == "opening" and parting.behind < _MUCH:
        return None  # most first messages: looked at no further
    span = spot.slot
    if not are_values(spot, span) or not stands_first(spot, span):
        return None
    if not _is_worth_it(spot, span):
        return None
    message = f"what is particular to this request stands in {spot.owner} before what others have in common with it"
    return spot.cause(span, Words("warning", message, _HELP.format(path=spot.path)), place="personal")


def _is_worth_it(spot: Spot, span: Span) -> bool:
    """More is shared behind it than two agents may have in common by chance."""
    shared = spot.text_behind(span)
    if spot.where == "opening":
        return shared >= max(_MUCH, span.size)
    return 2 * shared >= span.size and spot.comes_again(span)


def inspect(prompt: Prompt) -> Iterator[Observation]:
    """A placeholder for a task or a user at the beginning of a prompt file."""
    if prompt.record.dialect != "prompt":
        return
    for string in head_strings(prompt):
        for slot in find_placeholders(string.value, "personal"):
            if slot.start <= _BEGINNING and len(string.value) - slot.end >= max(MIN_SHARED, slot.start):
                name = string.value[slot.start : slot.end]
                message = f"{name} will be filled in for each user or task, before text that all of them share"
                words = Words("warning", message, _HELP.format(path=prompt.path(string.keys)))
                yield suspicion(string, slot.start, slot.end, words)
                return


RULE = Rule(
    code="AC105",
    name="user-text-first",
    what="Text that is particular to a user or a task stands before text that the requests of all users or tasks share.",
    why=(
        "A cache shares beginnings. A profile or a task at the start of each prompt makes everything behind it private: "
        "instructions that are the same for a hundred sub-agents are computed a hundred times. The other way round they are "
        "computed once."
    ),
    bad='{"role": "system", "content": "Your task: find out why the cart is empty …\\n\\nYou are a careful engineer. …"}',
    good='{"role": "system", "content": "You are a careful engineer. …\\n\\nYour task: find out why the cart is empty …"}',
    fix_safety="Shown, never applied: it changes the order in which the model reads the parts.",
    precedence=60,
    explain=explain,
    inspect=inspect,
)
