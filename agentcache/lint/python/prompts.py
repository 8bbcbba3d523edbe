"""The places of a module where text becomes part of a prompt that later requests repeat."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from agentcache.lint.python.counters import LISTS
from agentcache.lint.python.edited import edited_place
from agentcache.lint.python.module import Module, item_of, keyword_of, last_word
from agentcache.lint.python.names import Here, Names
from agentcache.lint.python.places import Definition, Point, Scope

Part = Literal["system", "tool", "earlier", "constant"]
Manner = Literal["sent", "kept", "named"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """An expression whose text goes into a prompt, in front of what changes anyway.

    Attributes:
        part: ``constant`` is a prompt as a whole: of a completion, or a module's constant that is called one.
        manner: ``sent`` with a request, ``kept`` by an agent that is made once, or only ``named`` like a system prompt.
        followed: the messages of the conversation are put behind it.
    """

    node: ast.expr
    point: Point
    part: Part
    manner: Manner
    line: int
    followed: bool = False


_HEADS = ("system", "developer")
_SURE_WORDS = {"system_prompt", "system_instruction", "system_message", "developer_message"}
_WORDS = {"instructions", "system", "prompt_prefix"}
_AGENT_WORDS = {"prompt", "instruction", "state_modifier", "backstory"}
_SENDING = {"create", "parse", "stream", "session", "count_tokens", "generate", "complete", "chat", "asession"}
_SCHEMAS = {"parameters", "input_schema", "params_json_schema"}
_BESIDE = {"messages", "model", "tools", "input", "max_tokens", "llm"}
_MESSAGE_CALLS = {
    "SystemMessage",
    "DeveloperMessage",
    "SystemMessagePromptTemplate",
    "SystemPromptPart",
    "InstructionPart",
}
_NAMED = re.compile(r"^_?(?:\w+_)?system_?(?:prompt|message|instructions?|text)(?:_text|_str)?$", re.IGNORECASE)
_MAKING = re.compile(
    r"^_*(?:build|get|make|create|render|compose|generate|format|default|construct|assemble|prepare)?_*"
    r"(?:\w+_)?(?:system_?(?:prompt|message|instructions?)|agent_?(?:prompt|instructions?))$",
    re.IGNORECASE,
)
_COMPLETION = re.compile(r"completions\.create$|\.a?complete$|text_completion$")
_CONSTANT = re.compile(r"(?:^|_)PROMPT(?:_|$)")
_DECORATORS = {"system_prompt", "instructions"}


def prompts_of(module: Module, names: Names) -> Iterator[Prompt]:
    """All of them; those that are surely sent first."""
    for node, point in module.dicts:
        yield from _of_dict(module, names, node, point)
    for call, point in module.calls:
        yield from _of_call(module, names, call, point)
    for pair, point in module.pairs:
        role = pair.elts[0]
        if isinstance(role, ast.Constant) and role.value in _HEADS and not _is_tail(module, names, pair, point):
            yield Prompt(pair.elts[1], point, "system", "sent", pair.lineno)
    for functions in module.functions.values():
        for scope in functions:
            yield from _of_function(scope)
    for scope in module.scopes:
        yield from _of_variables(scope)
    yield from _of_edits(module)
    yield from _of_attributes(module)


def role_of(node: ast.expr) -> str | None:
    """The role of a message that is written out."""
    role: ast.expr | None = None
    if isinstance(node, ast.Dict):
        role = item_of(node, "role")
    elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
        role = node.elts[0]
    elif isinstance(node, ast.Call):
        if last_word(node.func) in _MESSAGE_CALLS:
            return "system"
        role = keyword_of(node, "role")
    if isinstance(role, ast.Attribute) and role.attr in ("SYSTEM", "DEVELOPER"):
        return role.attr.lower()
    return role.value if isinstance(role, ast.Constant) and isinstance(role.value, str) else None


def _of_dict(module: Module, names: Names, node: ast.Dict, point: Point) -> Iterator[Prompt]:
    content, role = item_of(node, "content"), role_of(node)
    if role in _HEADS and content is not None:
        if not _is_tail(module, names, node, point):
            followed = _has_more_behind(module, node) or _is_extended(module, node, point)
            for prompt in _contents(content, point, "system", "sent", node.lineno):
                yield replace(prompt, followed=followed)
    elif role is not None and content is not None and _has_more_behind(module, node):
        yield from _contents(content, point, "earlier", "sent", node.lineno)
    for word in ("system", "instructions"):
        text = item_of(node, word)
        if text is not None and item_of(node, "model") is not None:
            yield from _contents(text, point, "system", "sent", node.lineno)
    yield from _of_tool(node, point)


def _of_tool(node: ast.Dict, point: Point) -> Iterator[Prompt]:
    """A tool that is written out, whoever sends it: ``{"name": …, "description": …, "parameters": …}``."""
    inner, kind = item_of(node, "function"), item_of(node, "type")
    if isinstance(inner, ast.Dict) and isinstance(kind, ast.Constant) and kind.value == "function":
        text = item_of(inner, "description")
        if text is not None and item_of(inner, "name") is not None:
            yield Prompt(text, point, "tool", "sent", node.lineno)
    description = item_of(node, "description")
    schema = item_of(node, "parameters") or item_of(node, "input_schema")
    if description is None or schema is None:
        return
    yield Prompt(description, point, "tool", "sent", node.lineno)
    if item_of(node, "name") is not None and _is_schema(schema):
        yield Prompt(schema, point, "tool", "sent", node.lineno)


def _is_schema(node: ast.expr) -> bool:
    """A JSON Schema that is written out, or has a name."""
    if isinstance(node, ast.Dict):
        return any(item_of(node, word) is not None for word in ("type", "properties", "$ref", "anyOf"))
    return isinstance(node, ast.Name)


def _contents(content: ast.expr, point: Point, part: Part, manner: Manner, line: int) -> Iterator[Prompt]:
    """A content is a text or a list of parts with texts."""
    parts = content.elts if isinstance(content, ast.List) else [content]
    for element in parts:
        text = item_of(element, "text") if isinstance(element, ast.Dict) else element
        if text is not None:
            yield Prompt(text, point, part, manner, line)


def _of_call(module: Module, names: Names, node: ast.Call, point: Point) -> Iterator[Prompt]:
    word = last_word(node.func)
    if role_of(node) in _HEADS:
        content = keyword_of(node, "content") or (node.args[0] if node.args and word in _MESSAGE_CALLS else None)
        if content is not None and not _is_tail(module, names, node, point):
            yield from _contents(content, point, "system", "sent", node.lineno)
        return
    agent = word.endswith("Agent") or word in ("Assistant", "create_react_agent", "create_agent")
    given = {keyword.arg for keyword in node.keywords}
    sending = agent or word in _SENDING or bool(given & _BESIDE)
    for keyword in node.keywords:
        of_agent = agent and keyword.arg in _AGENT_WORDS
        if keyword.arg in _SURE_WORDS or of_agent or (keyword.arg in _WORDS and sending):
            yield from _argument(names, keyword.value, point, "kept" if agent else "sent", node.lineno)
        elif keyword.arg == "prompt" and _COMPLETION.search(ast.unparse(node.func)):
            yield Prompt(keyword.value, point, "constant", "sent", node.lineno)
        elif (keyword.arg == "description" and word.lower().endswith("tool")) or (
            keyword.arg in _SCHEMAS and word.lower().endswith("tool") and _is_schema(keyword.value)
        ):
            yield Prompt(keyword.value, point, "tool", "kept", node.lineno)


def _argument(names: Names, value: ast.expr, point: Point, manner: Manner, line: int) -> Iterator[Prompt]:
    """A text, or the function that makes it for each run."""
    scope = names.function(value, Here(point)) if isinstance(value, ast.Name | ast.Attribute) else None
    if isinstance(value, ast.Lambda):
        yield Prompt(value.body, point, "system", "sent", line)
    elif scope is not None and not _is_property(scope):
        yield from (Prompt(node, place, "system", "sent", line) for node, place in scope.returns)
    elif isinstance(value, ast.Name | ast.Attribute) and _is_made_elsewhere(names, value, point):
        yield Prompt(value, point, "system", "sent", line)
    else:
        yield from _contents(value, point, "system", manner, line)


def _is_made_elsewhere(names: Names, value: ast.expr, point: Point) -> bool:
    found = names.imported(value, Here(point))
    return found is not None and found.function is not None


def _is_property(scope: Scope) -> bool:
    node = scope.node
    return isinstance(node, ast.FunctionDef) and any("property" in last_word(part) for part in node.decorator_list)


def _of_function(scope: Scope) -> Iterator[Prompt]:
    node = scope.node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    decorators = [part.func if isinstance(part, ast.Call) else part for part in node.decorator_list]
    decorated = any(isinstance(part, ast.Attribute) and part.attr in _DECORATORS for part in decorators)
    if decorated or _MAKING.match(node.name):
        for value, point in scope.returns:
            if decorated or isinstance(value, ast.JoinedStr | ast.BinOp | ast.Call | ast.Name):
                yield Prompt(value, point, "system", "sent" if decorated else "named", value.lineno)


def _of_variables(scope: Scope) -> Iterator[Prompt]:
    if isinstance(scope.node, ast.ClassDef):
        return
    for name, definitions in scope.definitions.items():
        constant = isinstance(scope.node, ast.Module) and _CONSTANT.search(name) is not None
        part: Part = "system" if _NAMED.match(name) else "constant"
        if part == "system" or constant:
            for definition in definitions:
                if definition.kind in ("value", "add") and isinstance(definition.value, _COMPOSED):
                    yield Prompt(definition.value, definition.point, part, "named", definition.point.line)


def _of_attributes(module: Module) -> Iterator[Prompt]:
    """``agent.system_message = …``."""
    for statement, point in module.statements:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, _COMPOSED):
            continue
        for target in statement.targets:
            if isinstance(target, ast.Attribute) and _NAMED.match(target.attr):
                yield Prompt(statement.value, point, "system", "named", statement.lineno)


def _of_edits(module: Module) -> Iterator[Prompt]:
    """``messages[0]["content"] = …``."""
    for statement, point in module.statements:
        if not isinstance(statement, ast.Assign | ast.AugAssign):
            continue
        if not isinstance(statement.value, (*_COMPOSED, ast.Name)):
            continue
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        edited = edited_place(target)
        if (
            edited is not None
            and edited != target
            and LISTS.search(last_word(edited))
            and not isinstance(target, ast.Name)
        ):
            yield Prompt(statement.value, point, "system", "sent", statement.lineno, followed=True)


_COMPOSED = (ast.JoinedStr, ast.BinOp, ast.Call)


# -- where in the list a message stands


def _is_tail(module: Module, names: Names, node: ast.expr, point: Point) -> bool:
    """The message is put behind others: nothing that was sent before comes after it."""
    placing = module.placings.get(id(node))
    if placing is None:
        return any(_is_tail(module, names, use, place) for use, place in _uses(module, node, point))
    owner, index = placing.owner, placing.index
    if isinstance(owner, ast.List):
        return any(role_of(part) not in _HEADS for part in owner.elts[:index]) or _is_added(module, names, owner, point)
    if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute):
        return _is_appended(names, owner, owner.func, point)
    return False


def _uses(module: Module, node: ast.expr, point: Point) -> Iterator[tuple[ast.expr, Point]]:
    """Where a message that is first given a name is put into a list."""
    names = {
        definition.name
        for definitions in point.scope.definitions.values()
        for definition in definitions
        if definition.value is node and definition.kind == "value"
    }
    if not names:
        return
    for call, place in module.calls:
        if place.scope is point.scope and last_word(call.func) in ("append", "insert"):
            yield from ((part, place) for part in call.args if isinstance(part, ast.Name) and part.id in names)
    for owner, place in module.lists:
        if place.scope is point.scope:
            yield from ((part, place) for part in owner.elts if isinstance(part, ast.Name) and part.id in names)


def _is_added(module: Module, names: Names, owner: ast.List, point: Point) -> bool:
    """``history + [message]``, ``history.extend([message])`` or ``history += [message]``."""
    placing = module.placings.get(id(owner))
    if placing is None:
        return any(
            definition.kind == "add" and definition.value is owner
            for definitions in point.scope.definitions.values()
            for definition in definitions
        )
    if isinstance(placing.owner, ast.BinOp):
        left = placing.owner.left
        return placing.index == 1 and not (
            isinstance(left, ast.List) and all(role_of(part) in _HEADS for part in left.elts)
        )
    if isinstance(placing.owner, ast.Call) and isinstance(placing.owner.func, ast.Attribute):
        return _is_appended(names, placing.owner, placing.owner.func, point)
    return False


def _is_appended(names: Names, call: ast.Call, func: ast.Attribute, point: Point) -> bool:
    if func.attr == "insert":
        first = call.args[0]
        return not (isinstance(first, ast.Constant) and first.value in (0, 1))
    if func.attr not in ("append", "extend"):
        return False
    here = Here(point)
    if isinstance(func.value, ast.Name):
        meaning = names.meaning(func.value.id, here)
        return meaning is None or not _begins_here(list(meaning.definitions), point)
    if isinstance(func.value, ast.Attribute):
        return not point.scope.is_init
    return False


def _begins_here(definitions: list[Definition], point: Point) -> bool:
    """What was put into the list before are system messages only, so this one stands at its beginning too."""
    own = [definition for definition in definitions if definition.point.order < point.order]
    base = [definition for definition in own if not definition.extends]
    if not base or any(definition.point.loops != point.loops for definition in base):
        return False
    return all(_only_heads(definition) for definition in own)


def _only_heads(definition: Definition) -> bool:
    value = definition.value
    if isinstance(value, ast.List):
        return all(role_of(part) in _HEADS for part in value.elts)
    return definition.extends and value is not None and role_of(value) in _HEADS


def _has_more_behind(module: Module, node: ast.expr) -> bool:
    """A list that is built anew puts the message in front of others that the program keeps."""
    placing = module.placings.get(id(node))
    if placing is None or not isinstance(placing.owner, ast.List):
        return False
    if any(isinstance(part, ast.Starred) for part in placing.owner.elts[placing.index + 1 :]):
        return True
    outer = module.placings.get(id(placing.owner))
    return outer is not None and isinstance(outer.owner, ast.BinOp) and outer.index == 0


def _is_extended(module: Module, node: ast.expr, point: Point) -> bool:
    """The message is put into a list that there is already, or whose other messages are put behind it as a whole."""
    placing = module.placings.get(id(node))
    if placing is None:
        return False
    if isinstance(placing.owner, ast.Call):
        return last_word(placing.owner.func) == "insert"
    names = {
        definition.name
        for definitions in point.scope.definitions.values()
        for definition in definitions
        if definition.value is placing.owner
    }
    added = (
        definition.kind == "add" and not isinstance(definition.value, ast.List)
        for name in names
        for definition in point.scope.definitions[name]
    )
    extended = (
        place.scope is point.scope and isinstance(call.func, ast.Attribute) and last_word(call.func.value) in names
        for call, place in module.callers.get("extend", ())
    )
    return any(added) or any(extended)
