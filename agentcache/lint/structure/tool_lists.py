"""Lists of tools, as two requests offer them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.lint.parting import Parting
from agentcache.lint.records import Body
from agentcache.lint.structure.conversations import comparable, goes_on, same_agent

Tool = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolLists:
    """The tools of two requests of one program, which are not the same text.

    Attributes:
        goes_on: the later request goes on from the earlier one.
    """

    earlier: tuple[Tool, ...]
    later: tuple[Tool, ...]
    goes_on: bool

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return names_of(self.earlier), names_of(self.later)

    @property
    def same_names(self) -> bool:
        """The same set of tools, in whatever order."""
        before, after = self.names
        return sorted(before) == sorted(after)

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for requests that offer tools of the same names."""
        return tuple(sorted(self.names[1]))

    def earlier_tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.earlier if name_of(tool) == name), None)


def tools_parting(parting: Parting) -> ToolLists | None:
    """The tools of two requests that are meant to offer the same; ``None`` when there is nothing to compare.

    Requests of one conversation are, and requests with the same system text, or with no system text at all.
    """
    if not comparable(parting) or parting.same_tools:
        return None
    follows = goes_on(parting)
    if not follows and not same_agent(parting):
        return None
    return ToolLists(tools_of(parting.earlier.record.body), tools_of(parting.later.record.body), follows)


def tools_of(body: Body) -> tuple[Tool, ...]:
    return tuple(tool for tool in body.get("tools") or () if isinstance(tool, Mapping))


def with_tools(body: Body, tools: Sequence[Tool]) -> Body:
    """A copy of ``body`` that offers ``tools``."""
    changed = {key: value for key, value in body.items() if key != "tools"}
    return {**changed, "tools": list(tools)} if tools else changed


def name_of(tool: Tool) -> str:
    function = tool.get("function")
    return str((function if isinstance(function, Mapping) else tool).get("name") or "")


def names_of(tools: Sequence[Tool]) -> tuple[str, ...]:
    return tuple(name_of(tool) for tool in tools)


def in_order_of(tools: Sequence[Tool], names: Sequence[str]) -> list[Tool]:
    """``tools`` in the order of ``names``, of which each is one of theirs."""
    left = list(tools)
    ordered = []
    for name in names:
        index = next(i for i, tool in enumerate(left) if name_of(tool) == name)
        ordered.append(left.pop(index))
    return ordered + left
