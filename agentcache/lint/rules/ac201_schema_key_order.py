"""AC201: the same tool schemas with their keys or numbers written in another way."""

from __future__ import annotations

from typing import Any

from agentcache.lint.finding import Fix
from agentcache.lint.parting import Parting
from agentcache.lint.records import Keys
from agentcache.lint.rules.base import BodyEdit, Cause, Rule
from agentcache.lint.structure.conversations import renders_further
from agentcache.lint.structure.tool_lists import Tool, ToolLists, name_of, tools_parting, with_tools
from agentcache.lint.structure.values import first_rewritten, in_writing_of
from agentcache.lint.structure.words import as_json, brief


def explain(parting: Parting) -> Cause | None:
    """A schema says the same as before, with keys in another order or numbers in another form."""
    lists = tools_parting(parting)
    if lists is None:
        return None
    tools, places = _as_before(lists)
    body = with_tools(parting.later.record.body, tools)
    if not places or not renders_further(parting, body):
        return None
    keys, before, after = places[0]
    name = name_of(lists.later[keys[0]]) if isinstance(keys[0], int) else ""
    what = "keys in another order" if isinstance(after, dict) else "a number in another form"
    more = f", and {len(places) - 1} more" if len(places) > 1 else ""
    return Cause(
        place=("schema writing", lists.key),
        edit=BodyEdit(body, ("tools", *keys)),
        char=None,
        severity="error",
        before=brief(before),
        after=brief(after),
        message=f"the schema of the tool {name!r}{more} is the same, written with {what}",
        help="write each schema once, keep that text or object, and send it unchanged; do not build it anew from a set",
        fix=Fix(applicability="unsafe"),
    )


def _as_before(lists: ToolLists) -> tuple[list[Tool], list[tuple[Keys, Any, Any]]]:
    """The later tools in the earlier ones' writing, and the first place of each that was written otherwise."""
    tools, places = [], []
    for index, tool in enumerate(lists.later):
        model = lists.earlier_tool(name_of(tool))
        mended = tool if model is None else in_writing_of(tool, model)
        if model is not None and as_json(mended) != as_json(tool):
            keys = first_rewritten(tool, model) or ()
            places.append(((index, *keys), _at(model, keys), _at(tool, keys)))
        tools.append(mended)
    return tools, places


def _at(value: Any, keys: Keys) -> Any:
    for key in keys:
        value = value[key]
    return value


RULE = Rule(
    code="AC201",
    name="schema-key-order",
    what="A tool's JSON schema is the same value as in an earlier request, with its keys in another order or 1 written as 1.0.",
    why=(
        "A model reads the schema as text. The same schema with two keys exchanged is another text, so it and everything "
        "behind it is computed again. Schemas that are generated anew for each request, or pass through a store that does "
        "not keep the order of keys, change like that without anyone noticing."
    ),
    bad=(
        '{"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}\n'
        '{"properties": {"path": {"type": "string"}}, "required": ["path"], "type": "object"}'
    ),
    good=(
        '{"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}\n'
        '{"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}'
    ),
    fix_safety=(
        "Unsafe: the value stays the same, but the order of keys can influence what a model calls. Sorted keys are not "
        "better than unsorted ones; what matters is that they stay as they were. Restored only when unsafe fixes are asked for."
    ),
    precedence=20,
    explain=explain,
)
