"""AC302: a tool is described in another way than before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcache.chat.text import common_length
from agentcache.lint.parting import Parting
from agentcache.lint.records import Keys
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import renders_further
from agentcache.lint.structure.small_changes import is_small
from agentcache.lint.structure.tool_lists import Tool, ToolLists, name_of, tools_parting, with_tools
from agentcache.lint.structure.values import Difference, differences, reordered
from agentcache.lint.structure.words import around, brief


def explain(parting: Parting) -> Cause | None:
    """A schema or a description says something else than before."""
    lists = tools_parting(parting)
    if lists is None or not lists.same_names:
        return None
    tools, found = _as_before(lists)
    if not found:
        return None
    body = with_tools(parting.later.record.body, tools)
    if not renders_further(parting, body):
        return None
    index, change = found[0]
    before, after, char = _shown(change)
    name = name_of(lists.later[index])
    others = len({place for place, _ in found}) - 1
    more = f" (and {others} more)" if others else ""
    keys, char = _place(lists.later[index], index, change, char)
    return Cause(
        place=("tool schema", name, change.keys),
        edit=BodyEdit(body, keys),
        char=char,
        severity="error",
        before=before,
        after=after,
        message=f"the tool {name!r}{more} is described in another way than before, at {_words(change.keys)}",
        help=(
            "keep schemas and descriptions the same for every request; what changes (open files, accounts, states) belongs "
            "into the newest message or into a tool's result"
        ),
    )


def _as_before(lists: ToolLists) -> tuple[list[Tool], list[tuple[int, Difference]]]:
    """The later tools with what the earlier ones say, and where they do not say it."""
    tools: list[Tool] = []
    found: list[tuple[int, Difference]] = []
    for index, tool in enumerate(lists.later):
        earlier = lists.earlier_tool(name_of(tool))
        changes = [] if earlier is None else [c for c in differences(earlier, tool) if _is_ours(c)]
        found += [(index, change) for change in changes]
        for change in changes:
            tool = _undone(tool, earlier, change)
        tools.append(tool)
    return tools, found


def _is_ours(change: Difference) -> bool:
    """Not a time, an id or another writing inside a text, nor a list in another order: these have rules of their own."""
    if isinstance(change.before, str) and isinstance(change.after, str):
        return change.keys[-1:] != ("description",) or not is_small(change.before, change.after)
    return not reordered(change.before, change.after)


def _undone(value: Any, earlier: Any, change: Difference, depth: int = 0) -> Any:
    """``value`` with the earlier value at the difference.  Keys of an object that lost or got one come from the earlier."""
    if depth == len(change.keys):
        return change.before
    key = change.keys[depth]
    if isinstance(value, Mapping):
        if depth == len(change.keys) - 1 and (change.added or change.gone):
            kept = {name: value.get(name, item) for name, item in earlier.items() if name in value or name == key}
            return kept | {name: item for name, item in value.items() if name not in kept and name != key}
        return {**value, key: _undone(value[key], earlier[key], change, depth + 1)}
    copy = list(value)
    copy[int(key)] = _undone(value[key], earlier[key], change, depth + 1)
    return copy


def _shown(change: Difference) -> tuple[str, str, int | None]:
    if isinstance(change.before, str) and isinstance(change.after, str):
        char = common_length(change.before, change.after)
        return *around(change.before, change.after, char), char
    return ("" if change.added else brief(change.before)), ("" if change.gone else brief(change.after)), None


def _place(tool: Tool, index: int, change: Difference, char: int | None) -> tuple[Keys, int | None]:
    """What is gone has no place of its own: it is what was around it."""
    keys = change.keys[:-1] if change.gone else change.keys
    return ("tools", index, *keys), char


def _words(keys: Keys) -> str:
    plain = [str(key) for key in keys if key != "function"]
    return ".".join(plain) or "the whole of it"


RULE = Rule(
    code="AC302",
    name="tool-schema-changed",
    what="A tool of the same name comes with another schema or another description than in an earlier request.",
    why=(
        "Tools stand at the very beginning of the prompt, so a description that lists the files that are open now, or a "
        "schema whose allowed values follow the state of the program, computes everything behind it again whenever it changes."
    ),
    bad='{"name": "open_tab", "description": "Opens a tab. Open now: mail, calendar."}',
    good='{"name": "open_tab", "description": "Opens a tab. list_tabs says which are open."}',
    fix_safety="Shown, never applied: what the tool is described by decides how a model uses it.",
    precedence=20,
    explain=explain,
)
