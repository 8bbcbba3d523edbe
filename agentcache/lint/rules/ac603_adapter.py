"""AC603: a conversation goes on with another adapter."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import agent_of
from agentcache.lint.structure.settings import changed_fields, named, with_fields_of

_FIELDS = ("model", "adapter", "lora", "lora_name", "lora_request")


def explain(parting: Parting) -> Cause | None:
    """The later request of a conversation asks for another adapter on the same model."""
    if "adapter" not in changed_fields(parting):
        return None
    earlier, later = parting.earlier.record.body, parting.later.record.body
    field = next((name for name in _FIELDS[1:] if name in later or name in earlier), "model")
    before, after = named(earlier).adapter, named(later).adapter
    return Cause(
        place=("adapter", agent_of(parting.later)),
        edit=BodyEdit(with_fields_of(later, earlier, _FIELDS), (field,) if field in later else ()),
        char=None,
        severity="warning",
        before=before or "no adapter",
        after=after or "no adapter",
        message=f"the conversation goes on with {f'the adapter {after}' if after else 'no adapter'}, with nothing cached for it",
        help="stay with one adapter for a conversation, and give another one only the part that it is to answer",
    )


RULE = Rule(
    code="AC603",
    name="adapter-changed",
    what="A later request of a conversation asks for another adapter (LoRA) on the same model, or for none.",
    why=(
        "An adapter changes the keys and values that a model computes from the first token on, so each adapter has a cache of "
        "its own. Each change computes the whole history again."
    ),
    bad='turn 1: {"model": "base:sql", …}\nturn 2: {"model": "base:prose", …}',
    good='turn 1: {"model": "base:sql", …}\nturn 2: {"model": "base:sql", …}',
    fix_safety="Shown, never applied: which adapter answers is for the program to decide.",
    precedence=10,
    explain=explain,
)
