"""AC403: most of a history is replaced by a summary.  Nothing is wrong with it; it has a price."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import Cause, NoEdit, Rule
from agentcache.lint.structure.conversations import agent_of
from agentcache.lint.structure.histories import Change, shift_of
from agentcache.lint.structure.recomputed import tokens_between
from agentcache.lint.structure.words import line_of


def explain(parting: Parting) -> Cause | None:
    """Most of what was said is replaced by fewer messages."""
    shift = shift_of(parting)
    if shift is None or shift.change is not Change.COMPACTED:
        return None
    price = tokens_between(parting, shift.at, shift.at + len(shift.new) + shift.again)
    return Cause(
        place=("compacted", agent_of(parting.later)),
        edit=NoEdit(("messages", shift.at), price, "exact"),
        char=None,
        severity="info",
        before=line_of(shift.gone[0]),
        after=line_of(shift.new[0]),
        message=f"{len(shift.gone)} earlier messages are replaced by {len(shift.new)}: the new beginning is computed once",
        help="nothing is wrong with it; the rarer a history is compacted, the cheaper",
        verdict="legitimate",
    )


RULE = Rule(
    code="AC403",
    name="history-compacted",
    what="Most of a conversation is replaced by a summary of it.",
    why=(
        "The summary, and what is kept behind it, is computed once, and every later request is the cheaper for it. This says "
        "what the change cost; it is off unless it is selected."
    ),
    bad="(nothing: a compaction is legitimate)\nevery turn: [system, summary, *last_messages]",
    good="when the context is nearly full: [system, summary], and from there on only appended to",
    fix_safety="There is nothing to fix.",
    precedence=80,
    optional=True,
    explain=explain,
)
