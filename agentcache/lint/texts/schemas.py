"""Lists inside tool schemas that hold the same items in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.lint.leaves import replace_at
from agentcache.lint.parting import Parting
from agentcache.lint.records import Body, Keys
from agentcache.lint.structure.conversations import renders_further
from agentcache.lint.structure.tool_lists import Tool, name_of, tools_parting, with_tools
from agentcache.lint.structure.values import differences, reordered


@dataclass(frozen=True, slots=True)
class ReorderedList:
    """
    Attributes:
        tool: name of the tool that it is in.
        body: the later request with this list, and every other one that differs so, in the order it had.
        count: how many lists.
    """

    keys: Keys
    tool: str
    before: Sequence[Any]
    after: Sequence[Any]
    body: Body
    count: int


def find_reordered_list(parting: Parting) -> ReorderedList | None:
    """The list in which the tools of two requests part, when only its order is another."""
    lists = tools_parting(parting)
    if lists is None:
        return None
    tools: list[Tool] = []
    found: list[tuple[Keys, str, Any, Any]] = []
    for index, tool in enumerate(lists.later):
        earlier, changed = lists.earlier_tool(name_of(tool)), tool
        for change in differences(earlier, tool) if earlier is not None else ():
            if reordered(change.before, change.after):
                found.append((("tools", index, *change.keys), name_of(tool), change.before, change.after))
                changed = replace_at(changed, change.keys, change.before)
        tools.append(changed)
    if not found:
        return None
    body = with_tools(parting.later.record.body, tools)
    return ReorderedList(*found[0], body, len(found)) if renders_further(parting, body) else None
