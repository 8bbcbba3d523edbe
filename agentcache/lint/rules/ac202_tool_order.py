"""AC202: the same tools in another order."""

from __future__ import annotations

from agentcache.lint.finding import Fix
from agentcache.lint.parting import Parting
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import renders_further
from agentcache.lint.structure.tool_lists import in_order_of, tools_parting, with_tools
from agentcache.lint.structure.words import listed


def explain(parting: Parting) -> Cause | None:
    """The later request offers the earlier one's tools in another order."""
    lists = tools_parting(parting)
    if lists is None or not lists.same_names:
        return None
    before, after = lists.names
    if before == after:
        return None
    body = with_tools(parting.later.record.body, in_order_of(lists.later, before))
    if not renders_further(parting, body):
        return None
    first = next(index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1])
    return Cause(
        place=("tool order", lists.key),
        edit=BodyEdit(body, ("tools", first)),
        char=None,
        severity="error",
        before=listed(before[first:]),
        after=listed(after[first:]),
        message=f"the same {len(after)} tools come in another order, from {after[first]!r} on",
        help="sort the tools once, by name or as they were registered, and send them in that order each time",
        fix=Fix(applicability="unsafe"),
    )


RULE = Rule(
    code="AC202",
    name="tool-order",
    what="Two requests offer the same tools in a different order.",
    why=(
        "Tool schemas are thousands of tokens at the very beginning of a prompt. When two of them change places, these, the "
        "system text and the whole conversation behind them are computed again. The usual reason is a set, a dictionary "
        "filled by threads, or servers that are asked for their tools and answer in the order in which they happen to."
    ),
    bad='"tools": [read_file, write_file, run_tests]\n"tools": [run_tests, read_file, write_file]',
    good='"tools": [read_file, run_tests, write_file]\n"tools": [read_file, run_tests, write_file]',
    fix_safety=(
        "Unsafe: the order of tools can influence which one a model calls, so the order of the earlier request is restored "
        "only when unsafe fixes are asked for."
    ),
    precedence=20,
    explain=explain,
)
