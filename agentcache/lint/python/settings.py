"""Tools and models that are not the same for all turns: AC202, AC203 and AC301 of tools, AC601."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from agentcache.lint.python.module import keyword_of, last_word
from agentcache.lint.python.names import Here, names_in, targets_of
from agentcache.lint.python.places import Definition, Loop, Point
from agentcache.lint.python.reading import Reader
from agentcache.lint.python.report import Defect
from agentcache.lint.python.sends import Send, Turn


def setting_defects(reader: Reader, sends: Sequence[Send], turns: Sequence[Turn]) -> Iterator[Defect]:
    """What is wrong with the tools and the model of calls."""
    given = [(send.options.get("tools"), send.point) for send in sends]
    agents = [(call, point) for call, point in reader.module.calls if last_word(call.func).endswith("Agent")]
    given += [(keyword_of(call, "tools"), point) for call, point in agents]
    for tools, point in given:
        if tools is not None:
            yield from _order(reader, tools, point)
    for turn in turns:
        if turn.loop is None:
            continue
        tools, model = turn.send.options.get("tools"), turn.send.options.get("model")
        if tools is not None:
            yield from _changing_tools(reader, tools, turn.send, turn.loop)
        if model is not None:
            yield from _changing_model(reader, model, turn.send, turn.loop)


def _order(reader: Reader, tools: ast.expr, point: Point) -> Iterator[Defect]:
    source = reader.orders.unordered(tools, Here(point))
    if source is not None:
        yield Defect(
            code="AC203",
            severity="warning",
            confidence="suspected",
            node=tools,
            point=point,
            message=f"{source.thing} ({reader.program.place_of(source.node)}) is the order of the tools",
            help="keep the tools in a list, or sort them by name",
            wrap=source.wrap if source.sortable else None,
            source=source.node,
        )
    for call, place in reader.module.callers.get("shuffle", ()):
        if (
            call.args
            and isinstance(tools, ast.Name)
            and place.scope is point.scope
            and tools.id in names_in(call.args[0])
        ):
            yield Defect(
                code="AC202",
                severity="warning",
                confidence="suspected",
                node=call,
                point=place,
                message=f"the tools that line {point.line} sends are shuffled",
                help="send the tools in one fixed order",
            )


def _in_loop(reader: Reader, node: ast.expr, point: Point, loop: Loop) -> tuple[ast.expr, Point] | None:
    """The expression that is evaluated anew in each turn of the loop; ``None``: it was evaluated before."""
    for _ in range(4):
        if not isinstance(node, ast.Name):
            return (node, point) if loop in point.loops else None
        meaning = reader.names.meaning(node.id, Here(point))
        plain = [] if meaning is None else [found for found in meaning.definitions if not found.extends]
        if len(plain) != 1 or plain[0].value is None or plain[0].kind != "value":
            return None
        node, point = plain[0].value, plain[0].point
    return None


def _set_in(name: str, point: Point, loop: Loop) -> list[Definition]:
    return [found for found in point.scope.definitions.get(name, ()) if loop in found.point.loops]


def _changing_tools(reader: Reader, tools: ast.expr, send: Send, loop: Loop) -> Iterator[Defect]:
    found = _in_loop(reader, tools, send.point, loop)
    if found is None:
        return
    node, point = found
    varies = set() if isinstance(loop, ast.While) else set(targets_of(loop.target))
    tests: list[ast.expr] = []
    if isinstance(node, ast.ListComp):
        tests = [test for generator in node.generators for test in generator.ifs]
    elif isinstance(node, ast.IfExp):
        tests = [node.test]
    used = {name for test in tests for name in names_in(test)}
    if any(name in varies or _set_in(name, point, loop) for name in used):
        yield Defect(
            code="AC301",
            severity="warning",
            confidence="suspected",
            node=node,
            point=point,
            message=f"the tools that line {send.point.line} sends are chosen anew in each turn of the loop",
            help="offer the same tools for the whole conversation; tool_choice can forbid their use",
        )


def _changing_model(reader: Reader, model: ast.expr, send: Send, loop: Loop) -> Iterator[Defect]:
    found = _in_loop(reader, model, send.point, loop)
    if found is None:
        return
    node, point = found
    alternates = (
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.BinOp) and isinstance(node.slice.op, ast.Mod)
    )
    if isinstance(node, ast.Call):
        name = reader.module.imported(node.func)
        iterated = name == "next" and bool(node.args) and _is_cycle(reader, node.args[0], point)
        alternates = name == "random.choice" or iterated
    if alternates:
        yield Defect(
            code="AC601",
            severity="warning",
            confidence="suspected",
            node=node,
            point=point,
            message=f"line {send.point.line} sends one conversation to several models in turn",
            help="stay with one model for a conversation; each computes its own cache",
        )


def _is_cycle(reader: Reader, node: ast.expr, point: Point) -> bool:
    if isinstance(node, ast.Name):
        meaning = reader.names.meaning(node.id, Here(point))
        values = [] if meaning is None else [found.value for found in meaning.definitions if found.value is not None]
        return bool(values) and all(
            not isinstance(value, ast.Name) and _is_cycle(reader, value, point) for value in values
        )
    return isinstance(node, ast.Call) and reader.module.imported(node.func) == "itertools.cycle"
