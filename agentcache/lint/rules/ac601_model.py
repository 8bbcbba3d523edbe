"""AC601: a conversation goes on with another model."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import agent_of
from agentcache.lint.structure.settings import changed_fields, named, with_fields_of


def explain(parting: Parting) -> Cause | None:
    """The later request of a conversation names another model than the earlier one."""
    if "model" not in changed_fields(parting):
        return None
    earlier, later = parting.earlier.record.body, parting.later.record.body
    return Cause(
        place=("model", agent_of(parting.later)),
        edit=BodyEdit(with_fields_of(later, earlier, ("model",)), ("model",)),
        char=None,
        severity="warning",
        before=str(named(earlier).model),
        after=str(named(later).model),
        message=f"the conversation goes on with the model {later['model']}, which has cached nothing of it",
        help=(
            "stay with one model for a conversation; where another one is to answer a part of it, give that one the part "
            "alone, and not the whole history"
        ),
    )


RULE = Rule(
    code="AC601",
    name="model-changed",
    what="A later request of a conversation names another model.",
    why=(
        "What is cached are a model's own intermediate results, so no other model can use them. Each change computes the whole "
        "history again, at the full price of the model that is changed to."
    ),
    bad='turn 1: {"model": "large", …}\nturn 2: {"model": "small", …}\nturn 3: {"model": "large", …}',
    good='turn 1: {"model": "large", …}\nturn 2: {"model": "large", …}',
    fix_safety="Shown, never applied: which model answers is for the program to decide.",
    precedence=10,
    explain=explain,
)
