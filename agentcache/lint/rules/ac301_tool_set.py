"""AC301: other tools are offered than before."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import agent_of, renders_further
from agentcache.lint.structure.tool_lists import Tool, ToolLists, name_of, tools_parting, with_tools
from agentcache.lint.structure.words import listed

_ALIKE = 2 / 3
"""Of all tools of two conversations so many are the same when they are meant to be the same agent's."""


def explain(parting: Parting) -> Cause | None:
    """Tools were added or left out in the middle of a conversation, or differ between conversations of one agent."""
    lists = tools_parting(parting)
    if lists is None or lists.same_names or not (lists.goes_on or _is_a_selection(parting, lists)):
        return None
    body = with_tools(parting.later.record.body, _offered_before(lists))
    if not renders_further(parting, body):
        return None
    before, after = lists.names
    added = [name for name in after if name not in before]
    gone = [name for name in before if name not in after]
    return Cause(
        place=("tool set", agent_of(parting.later)),
        edit=BodyEdit(body, ("tools",), puts_back=True),
        char=None,
        severity="error" if lists.goes_on else "warning",
        before=listed(before) or "no tools",
        after=listed(after) or "no tools",
        message=f"the tools change {_where(lists)}: {_change(added, gone, after)}",
        help=(
            "offer the same tools in every request, and announce new ones behind what was said (a session's add_tools); "
            "to forbid calls for a while, send tool_choice instead of leaving tools out"
        ),
    )


def _is_a_selection(parting: Parting, lists: ToolLists) -> bool:
    """Another choice from the same stock.  A tool more or a tool less is another agent, or a newer version of it."""
    if agent_of(parting.earlier) != agent_of(parting.later):
        return False
    before, after = map(set, lists.names)
    return len(before & after) >= _ALIKE * len(before | after) and bool(before - after) and bool(after - before)


def _offered_before(lists: ToolLists) -> list[Tool]:
    """The earlier request's set of tools in its order, each as the later request has it if it has it."""
    later = {name_of(tool): tool for tool in lists.later}
    return [later.get(name_of(tool), tool) for tool in lists.earlier]


def _where(lists: ToolLists) -> str:
    return "within a conversation" if lists.goes_on else "between conversations with the same system text"


def _change(added: list[str], gone: list[str], after: tuple[str, ...]) -> str:
    if not after:
        return "all of them are left out"
    words = [f"{listed(names)} {verb}" for names, verb in ((added, "added"), (gone, "left out")) if names]
    return ", ".join(words) or "one of them is offered more than once"


RULE = Rule(
    code="AC301",
    name="tool-set-changed",
    what="A conversation goes on with other tools, or conversations with the same system text offer different selections.",
    why=(
        "Tools stand at the beginning of the prompt, before everything that was said. Adding one, or leaving one out for a "
        "turn, computes the whole conversation again, usually twice: once for the change, and once for the way back."
    ),
    bad='turn 1: "tools": [read_file, run_tests]\nturn 2: "tools": [read_file, run_tests, deploy]',
    good=(
        'turn 1: "tools": [read_file, run_tests, deploy], "tool_choice": "auto"\n'
        'turn 2: "tools": [read_file, run_tests, deploy], "tool_choice": "none"'
    ),
    fix_safety="Shown, never applied: which tools a model may call is for the program to decide.",
    precedence=20,
    explain=explain,
)
