"""Tool calls that are replayed in another way than they were generated: AC207, AC208."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agentcache.lint.python.calls import is_dump, is_load
from agentcache.lint.python.module import item_of, last_word
from agentcache.lint.python.names import Here
from agentcache.lint.python.places import Point
from agentcache.lint.python.reading import Reader
from agentcache.lint.python.report import Defect
from agentcache.lint.python.texts import each_slot


def replay_defects(reader: Reader) -> Iterator[Defect]:
    """Arguments that are parsed and written again, and ids that are made anew, in messages that are written out."""
    for node, point in reader.module.dicts:
        arguments = item_of(node, "arguments")
        if (
            arguments is not None
            and item_of(node, "name") is not None
            and _is_rewritten(reader, arguments, Here(point))
        ):
            yield Defect(
                code="AC207",
                severity="warning",
                confidence="suspected",
                node=arguments,
                point=point,
                message="a call's arguments are parsed and written again before they are replayed",
                help="replay the text of the arguments as it was generated; parse a copy to run the tool",
            )
    yield from _ids(reader)


def _is_rewritten(reader: Reader, node: ast.expr, here: Here) -> bool:
    """``json.dumps(json.loads(call.function.arguments))``, with names in between."""
    written = _behind_names(reader, node, here)
    if (
        written is None
        or not is_dump(reader, written[0])
        or not isinstance(written[0], ast.Call)
        or not written[0].args
    ):
        return False
    parsed = _behind_names(reader, written[0].args[0], written[1])
    if parsed is None or not is_load(reader, parsed[0]) or not isinstance(parsed[0], ast.Call) or not parsed[0].args:
        return False
    text = _behind_names(reader, parsed[0].args[0], parsed[1])
    return text is not None and any(_says_arguments(part) for part in ast.walk(text[0]))


def _behind_names(reader: Reader, node: ast.expr, here: Here) -> tuple[ast.expr, Here] | None:
    """The expression that a name was set to, if it was set in one way only."""
    while isinstance(node, ast.Name) and not here.too_deep:
        meaning = reader.names.meaning(node.id, here)
        if meaning is None or len(meaning.definitions) != 1 or not meaning.near:
            return node, here
        definition = meaning.definitions[0]
        if definition.kind != "value" or definition.value is None:
            return node, here
        node, here = definition.value, meaning.at(definition)
    return node, here


def _says_arguments(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "arguments"
    return isinstance(node, ast.Constant) and node.value == "arguments"


def _ids(reader: Reader) -> Iterator[Defect]:
    """``{"id": uuid4(), …} for call in message.tool_calls``: the calls had ids."""
    makers = ("uuid", "secrets", "random", "nanoid", "shortuuid")
    if not any(name.startswith(makers) for name in reader.module.imports.values()):
        return
    places = {id(node): point for node, point in reader.module.dicts}
    for walk, iterated in _over_calls(reader.module.tree):
        for node in ast.walk(walk):
            if not isinstance(node, ast.Dict) or id(node) not in places:
                continue
            value = item_of(node, "id") if item_of(node, "function") is not None else item_of(node, "tool_call_id")
            point: Point = places[id(node)]
            if value is None:
                continue
            if any(
                slot.source is not None and slot.source.code == "AC102"
                for slot in each_slot(reader.read(value, Here(point)))
            ):
                yield Defect(
                    code="AC208",
                    severity="warning",
                    confidence="suspected",
                    node=value,
                    point=point,
                    message=f"a call that came with an id ({ast.unparse(iterated)}) is replayed under a fresh one",
                    help="replay the ids that the reply's calls came with, and answer under the same ones",
                )


def _over_calls(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Loops and comprehensions over the calls of a reply."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor) and _is_calls(node.iter):
            yield node, node.iter
        elif isinstance(node, ast.ListComp | ast.GeneratorExp):
            for generator in node.generators:
                if _is_calls(generator.iter):
                    yield node, generator.iter


def _is_calls(node: ast.expr) -> bool:
    if isinstance(node, ast.BoolOp):
        return _is_calls(node.values[0])
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "tool_calls"
    if isinstance(node, ast.Call):
        return last_word(node.func) == "get" and any(
            isinstance(part, ast.Constant) and part.value == "tool_calls" for part in node.args
        )
    return isinstance(node, ast.Attribute) and node.attr == "tool_calls"
