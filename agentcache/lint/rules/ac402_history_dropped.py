"""AC402: old messages are left out."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import Cause, NoEdit, Rule
from agentcache.lint.structure.conversations import agent_of
from agentcache.lint.structure.histories import Change, Shift, shift_of
from agentcache.lint.structure.recomputed import tokens_between
from agentcache.lint.structure.words import counted, line_of


def explain(parting: Parting) -> Cause | None:
    """Messages that were sent before are missing, and what stood behind them comes again."""
    shift = shift_of(parting)
    if shift is None or shift.change is not Change.DROPPED:
        return None
    first = shift.at + len(shift.new)
    return Cause(
        place=("dropped", agent_of(parting.later)),
        edit=NoEdit(("messages", shift.at), tokens_between(parting, first, first + shift.again), "exact"),
        char=None,
        severity="info" if shift.most else "warning",
        before=line_of(shift.gone[0]),
        after=line_of(parting.later.messages[shift.at]),
        message=_message(shift),
        help=(
            "let the history grow, and shorten it rarely and by much: a window that moves with every turn computes itself "
            "again with every turn; a summary of most of the history is paid once (a session's compact)"
        ),
    )


def _message(shift: Shift) -> str:
    many = f"{counted(len(shift.gone), 'earlier message')} {'is' if len(shift.gone) == 1 else 'are'}"
    if shift.new:
        return f"{many} replaced by {len(shift.new)}, and most of the history stays and is computed again"
    if shift.most:
        return f"{many} left out in one go, and what is kept is computed again"
    return f"{many} left out, and all that stands behind is computed again"


RULE = Rule(
    code="AC402",
    name="history-dropped",
    what="Messages of the beginning of a conversation are left out of a later request (a sliding window).",
    why=(
        "What is kept moves to another place in the prompt, so all of it is computed again. A window of the last N messages "
        "moves with every turn and never finds more than the system text. Cutting most of the history off at once costs the "
        "same, but once: that is said as well, as a mere note."
    ),
    bad="messages = [system, *history[-10:]]",
    good="if tokens(history) > limit:\n    history = [summary_of(history)]\nmessages = [system, *history]",
    fix_safety="Shown, never applied: what a model may forget is for the program to decide.",
    precedence=80,
    explain=explain,
)
