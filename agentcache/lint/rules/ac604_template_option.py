"""AC604: an option that the template renders differs within a conversation."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import agent_of, comparable, goes_on, renders_further
from agentcache.lint.structure.settings import REPLY_OPTIONS, changed_options, options_of, with_options_of
from agentcache.lint.structure.words import as_json, listed


def explain(parting: Parting) -> Cause | None:
    """The template is given another value of a variable, and writes another text for it."""
    if not comparable(parting) or not parting.options_changed or not goes_on(parting):
        return None
    earlier, later = parting.earlier.record.body, parting.later.record.body
    names = [name for name in changed_options(earlier, later) if name not in REPLY_OPTIONS]
    body = with_options_of(later, earlier, names)
    if not names or not renders_further(parting, body):
        return None
    mine, theirs = options_of(earlier), options_of(later)
    name = next((name for name in names if name in theirs), None)
    return Cause(
        place=("options", agent_of(parting.later), tuple(sorted(names))),
        edit=BodyEdit(body, ("chat_template_kwargs",) if name is None else ("chat_template_kwargs", name)),
        char=None,
        severity="warning",
        before=listed([f"{name}: {as_json(mine.get(name))}" for name in names]),
        after=listed([f"{name}: {as_json(theirs.get(name))}" for name in names]),
        message=f"the conversation goes on with another value of {listed(names)}, which the chat template writes into the prompt",
        help="keep the options of the template the same for a conversation, or ask for the difference in the newest message",
    )


RULE = Rule(
    code="AC604",
    name="template-option-changed",
    what="An option of the chat template, such as a level of reasoning, differs within a conversation, and the text with it.",
    why=(
        "Options are variables of the template. Some only open the reply, and cost nothing. Others are printed at the very "
        "beginning, such as a level of reasoning in the system text, and then each change computes the conversation again."
    ),
    bad=(
        'turn 1: {"chat_template_kwargs": {"reasoning_effort": "high"}}\n'
        'turn 2: {"chat_template_kwargs": {"reasoning_effort": "low"}}'
    ),
    good=(
        'turn 1: {"chat_template_kwargs": {"reasoning_effort": "high"}}\n'
        'turn 2: {"chat_template_kwargs": {"reasoning_effort": "high"}}'
    ),
    fix_safety="Shown, never applied: the option decides how the model answers.",
    precedence=10,
    explain=explain,
)
