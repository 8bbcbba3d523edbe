"""AC404: a message is put in before ones that were sent already."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import Cause, NoEdit, Rule
from agentcache.lint.structure.conversations import agent_of
from agentcache.lint.structure.histories import Change, shift_of
from agentcache.lint.structure.recomputed import tokens_between
from agentcache.lint.structure.words import counted, line_of


def explain(parting: Parting) -> Cause | None:
    """A message is new, or moved, in front of messages that come again."""
    shift = shift_of(parting)
    if shift is None or shift.change not in (Change.INSERTED, Change.MOVED):
        return None
    moved = shift.change is Change.MOVED
    messages = shift.gone if moved else shift.new
    first = shift.at + len(shift.new)
    many = counted(len(messages), f"{messages[0]['role']} message")
    what = f"{many} moved behind" if moved else f"{many} put in before"
    return Cause(
        place=("inserted", agent_of(parting.later), messages[0]["role"]),
        edit=NoEdit(("messages", shift.at), tokens_between(parting, first, first + shift.again), "exact"),
        char=None,
        severity="warning",
        before=line_of(parting.earlier.messages[shift.at]),
        after=line_of(parting.later.messages[shift.at]),
        message=f"{what} what was sent before, which is computed again",
        help=(
            "add messages at the end only, and leave them where they were added: a reminder that wanders along with the newest "
            "message changes the place that it came from"
        ),
    )


RULE = Rule(
    code="AC404",
    name="inserted-before-tail",
    what="A message is put in before messages that were sent already, or is taken from its place and put in further behind.",
    why=(
        "What stands behind the new message moves, so it is computed again, though nothing of it changed. Reminders and notes "
        "that are put behind the system text, or are moved to the end with every turn, do that."
    ),
    bad="turn 1: [system, user, reply, user]\nturn 2: [system, note, user, reply, user, reply, user]",
    good="turn 1: [system, user, reply, user]\nturn 2: [system, user, reply, user, reply, user + note]",
    fix_safety="Shown, never applied: the order of messages decides what a model answers.",
    precedence=80,
    explain=explain,
)
