"""Reads expressions as texts: what is written out, what is filled in, and where that comes from."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agentcache.lint.python.calls import read_call, read_percent
from agentcache.lint.python.counters import counted
from agentcache.lint.python.elsewhere import elsewhere
from agentcache.lint.python.module import Module, is_self
from agentcache.lint.python.names import (
    Bound,
    Here,
    Meaning,
    Names,
    arguments_of,
    is_cached,
    names_in,
    parameter_node,
    summands,
    targets_of,
)
from agentcache.lint.python.order import Orders
from agentcache.lint.python.places import Definition, Point, Scope
from agentcache.lint.python.program import Program
from agentcache.lint.python.sources import TELLING, narrowed, source_of
from agentcache.lint.python.texts import (
    EMPTY,
    Slot,
    Value,
    each_slot,
    evaluated_at,
    has_source,
    joined,
    one_of,
    unsure,
    without_order,
    words,
)

_MOST_STEPS = 20_000
_MOST_STEPS_OF_A_PROMPT = 2_500
_DEEPEST_EXPRESSION = 50


class Reader:
    """Reads the expressions of one module.

    It never runs anything; what it does not know is a slot without a source.  The work is bounded: behind the limit
    everything is unknown.
    """

    def __init__(self, module: Module, program: Program) -> None:
        self.module = module
        self.program = program
        self.names = Names(module, program)
        self.orders = Orders(self.names)
        program.add(self)
        self.last_step = _MOST_STEPS
        self._known: dict[tuple[int, int, bool], tuple[Mapping[str, Bound], Value]] = {}
        self._open: set[tuple[int, int, bool]] = set()
        self._entered: set[int] = set()
        self.start = Point(module.scopes[0], (), (), (), 0, 1)
        self._readers: dict[type[ast.AST], Callable[[Any, Here], Value]] = {
            ast.Constant: self._constant,
            ast.JoinedStr: self._joined_str,
            ast.BinOp: self._operation,
            ast.Call: self._call,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Subscript: self._subscript,
            ast.IfExp: lambda node, here: one_of((self.read(node.body, here), self.read(node.orelse, here))),
            ast.BoolOp: lambda node, here: one_of([self.read(part, here) for part in node.values]),
            ast.NamedExpr: lambda node, here: self.read(node.value, here),
            ast.Await: lambda node, here: self.read(node.value, here),
            ast.Starred: lambda node, here: self.read(node.value, here),
            ast.List: self._elements,
            ast.Tuple: self._elements,
            ast.Dict: self._dict,
            ast.Set: self._unordered,
            ast.SetComp: self._unordered,
            ast.ListComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
        }

    def prompt(self, node: ast.expr, point: Point) -> Value:
        """The texts of a whole prompt; one that is too much work leaves the others their share."""
        self.last_step = min(_MOST_STEPS, self.program.steps + _MOST_STEPS_OF_A_PROMPT)
        try:
            return self.part(node, Here(point))
        finally:
            self.last_step = _MOST_STEPS

    def read(self, node: ast.expr, here: Here) -> Value:
        """The texts that ``node`` can be."""
        program = self.program
        owner = program.reader_at(here.point)
        if owner is not self:
            owner.last_step = self.last_step
            return owner.read(node, here)
        program.steps += 1
        reader = self._readers.get(type(node))
        if reader is None or here.too_deep or program.steps > self.last_step or program.nesting > _DEEPEST_EXPRESSION:
            return self.unknown(node, here)
        program.nesting += 1
        try:
            return reader(node, here)
        finally:
            program.nesting -= 1

    def beside(self, module: Module) -> Reader:
        """A reader of another module of the program."""
        return Reader(module, self.program)

    def part(self, node: ast.expr, here: Here) -> Value:
        """The same, for an expression that is composed with others: it is where a finding points, if it is one slot."""
        value = self.read(node, here)
        if all(len(text) == 1 and isinstance(text[0], Slot) for text in value):
            return tuple((replace(slot, node=node, point=here.point),) for slot in each_slot(value))
        return value

    def unknown(self, node: ast.expr, here: Here) -> Value:
        """A slot that nothing is known of but its name."""
        given = self.is_given(node, here)
        return ((Slot(node, here.point, here.point, label=self.label(node, here), given=given),),)

    def sources_only(self, value: Value, node: ast.expr, here: Here) -> Value:
        """One slot for all of ``value``: what comes out of a step that leaves little of the text."""
        slot = next((slot for slot in each_slot(value) if slot.source is not None), None)
        return self.unknown(node, here) if slot is None else ((replace(slot, node=node, point=here.point),),)

    def written_out(self, node: ast.expr, value: Value, here: Here) -> Value:
        """``str(tags)`` and ``{tags}`` write brackets, which sorting would change."""
        if self.orders.unordered(node, here) is None:
            return value
        return tuple(
            (replace(slot, source=replace(slot.source, wrap=None)),) for slot in each_slot(value) if slot.source
        )

    def part_of(self, value: Value, node: ast.expr, here: Here) -> Value:
        """A part of something: it varies if the whole comes out of one source, and may not if it was put together."""
        slots = [text[0] for text in value if len(text) == 1]
        whole = len(slots) == len(value) and all(isinstance(slot, Slot) and slot.source is not None for slot in slots)
        return self.sources_only(value, node, here) if whole else self.unknown(node, here)

    def label(self, node: ast.expr, here: Here) -> str:
        """What the program calls it: ``user.name``, ``retriever.search``."""
        if isinstance(node, ast.Name):
            bound = here.bound.get(node.id)
            return f"{self.label(bound.value, bound.here)}.{node.id}" if bound and bound.element else node.id
        if isinstance(node, ast.Attribute):
            return f"{self.label(node.value, here)}.{node.attr}".removeprefix("self.")
        if isinstance(node, ast.Call):
            return self.label(node.func, here)
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else ""
            return f"{self.label(node.value, here)}.{key}" if isinstance(key, str) else self.label(node.value, here)
        if isinstance(node, ast.Await | ast.Starred):
            return self.label(node.value, here)
        return ""

    def is_given(self, node: ast.expr, here: Here) -> bool:
        """It is a parameter, or comes out of one."""
        inner = node
        while isinstance(inner, ast.Attribute | ast.Subscript | ast.Await | ast.Call):
            inner = inner.func if isinstance(inner, ast.Call) else inner.value
        if not isinstance(inner, ast.Name):
            return False
        bound = here.bound.get(inner.id)
        if bound is not None:
            return self.is_given(bound.value, bound.here)
        meaning = self.program.reader_at(here.point).names.meaning(inner.id, here)
        return (
            meaning is not None
            and any(found.kind == "parameter" for found in meaning.definitions)
            and not is_self(inner)
        )

    # -- texts

    def _constant(self, node: ast.Constant, here: Here) -> Value:
        return EMPTY if node.value is None else words(node.value if isinstance(node.value, str) else str(node.value))

    def _joined_str(self, node: ast.JoinedStr, here: Here) -> Value:
        return joined(self._field(part, here) for part in node.values)

    def _field(self, part: ast.expr, here: Here) -> Value:
        if not isinstance(part, ast.FormattedValue):
            return self.read(part, here)
        value = self.written_out(part.value, self.part(part.value, here), here)
        if part.format_spec is None:
            return value
        spec = "".join(
            piece.value if isinstance(piece, ast.Constant) and isinstance(piece.value, str) else ""
            for piece in (part.format_spec.values if isinstance(part.format_spec, ast.JoinedStr) else ())
        )
        return self.narrow(value, part.value, here, spec)

    def _operation(self, node: ast.BinOp, here: Here) -> Value:
        if isinstance(node.op, ast.Add):
            return joined(self.part(part, here) for part in summands(node))
        if isinstance(node.op, ast.Mod):
            return read_percent(self, node, here)
        if isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv):
            return self.sources_only(joined((self.read(node.left, here), self.read(node.right, here))), node, here)
        if isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant | ast.Name):
            return self.read(node.left, here)
        return self._unordered(node, here)

    def _call(self, node: ast.Call, here: Here) -> Value:
        source = source_of(node, self.module)
        if source is not None:
            return ((Slot(node, here.point, here.point, source),),)
        return read_call(self, node, here)

    def narrow(self, value: Value, step: ast.expr, here: Here, pattern: str | None = None) -> Value:
        """What a step such as ``.date()`` leaves of the times in ``value``."""
        texts = []
        for text in value:
            pieces = []
            for piece in text:
                if isinstance(piece, Slot) and piece.source is not None:
                    piece = replace(piece, source=narrowed(piece.source, step, pattern))
                pieces.append(piece)
            texts.append(tuple(pieces))
        return tuple(texts)

    # -- names

    def _name(self, node: ast.Name, here: Here) -> Value:
        bound = here.bound.get(node.id)
        if bound is not None:
            inner = bound.here.at(bound.here.point)
            value = self._element(bound.value, inner) if bound.element else self.read(bound.value, inner)
            return value if not bound.element or has_source(value) else self.unknown(node, here)
        meaning = self.names.meaning(node.id, here)
        if meaning is None:
            source = source_of(node, self.module) or self.orders.unordered(node, here)
            if source is not None:
                return ((Slot(node, here.point, here.point, source),),)
            return self._imported(node, here)
        source = self.orders.unordered(node, here) or counted(meaning) or self.orders.shuffled(node, here)
        if source is not None:
            return ((Slot(node, here.point, here.point, source),),)
        return self._named(self.meant(meaning), node, here)

    def _imported(self, node: ast.Name | ast.Attribute, here: Here) -> Value:
        found = self.names.imported(node, here)
        value = EMPTY if found is None else elsewhere(self, found, node, here)
        return self.unknown(node, here) if value == EMPTY else self._named(value, node, here)

    def _named(self, value: Value, node: ast.expr, here: Here) -> Value:
        """A slot that fills the whole text goes by the name that is read."""
        if self.orders.is_sorted(node):
            value = without_order(value)
        if len(value) == 1 and len(value[0]) == 1 and isinstance(value[0][0], Slot):
            slot = value[0][0]
            if slot.source is None:
                label = f"{self.label(node, here)} {slot.label}".strip()
                return ((replace(slot, node=node, point=here.point, label=label),),)
        return value

    def meant(self, meaning: Meaning) -> Value:
        behind: list[Value] = []
        values: list[Value] = []
        for definition in meaning.definitions:
            value = self._defined(definition, meaning)
            if definition.extends:
                behind.insert(0, value)
            else:
                values.append(joined((value, *behind)))
        return one_of(values or [joined(behind)])

    def _defined(self, definition: Definition, meaning: Meaning) -> Value:
        """What a definition adds, read once; one that leads back to itself adds nothing."""
        key = (id(definition), id(meaning.here.bound), meaning.near)
        if key in self._open:
            return EMPTY
        if key not in self._known:
            self._open.add(key)
            try:
                self._known[key] = meaning.here.bound, self._set(definition, meaning.at(definition))
            finally:
                self._open.discard(key)
        value = self._known[key][1]
        sure = meaning.near and (not definition.extends or definition.point.always_before(meaning.here.point))
        return value if sure else tuple(unsure(text) for text in value)

    def _set(self, definition: Definition, here: Here) -> Value:
        if definition.kind == "parameter":
            return self._parameter(definition, here)
        if definition.value is None:
            return EMPTY
        if definition.kind == "element":
            return self._element(definition.value, here)
        if definition.kind == "part":
            return self.part_of(self.read(definition.value, here), definition.value, here)
        value = self.part(definition.value, here)
        return joined((self._order_of_loops(definition, here), value)) if definition.extends else value

    def _element(self, node: ast.expr, here: Here) -> Value:
        """One of the elements of ``node``: only that it comes from a source matters."""
        if here.too_deep or self.orders.unordered(node, here) is not None:
            return self.unknown(node, here)
        return self.part_of(without_order(self.read(node, here)), node, here)

    def _order_of_loops(self, definition: Definition, here: Here) -> Value:
        """``for tag in tags: text += tag``: the text has the order of ``tags``."""
        if definition.value is None:
            return EMPTY
        used = names_in(definition.value)
        for loop in definition.point.loops:
            if isinstance(loop, ast.While) or not used.intersection(targets_of(loop.target)):
                continue
            order = self.orders.unordered(loop.iter, here)
            if order is not None:
                return ((Slot(loop.iter, here.point, here.point, order),),)
        return EMPTY

    def _parameter(self, definition: Definition, here: Here) -> Value:
        """What it is called with inside the module, where that is telling, and else a slot of its name."""
        scope = here.point.scope
        own = ((Slot(parameter_node(definition, here), here.point, here.point, label=definition.name, given=True),),)
        values: list[Value] = [own]
        if definition.value is not None:
            values.append(self.read(definition.value, Here(self.start, {}, here.depth + 1)))
        if here.depth <= 8:
            for call, point in self.names.calls_of(scope):
                bound = arguments_of(call, scope, Here(point, {}, here.depth + 1)).get(definition.name)
                if bound is not None:
                    value = self.read(bound.value, bound.here)
                    if has_source(value):
                        values.append(value)
        found = [value for value in values if value is own or has_source(value)]
        return one_of(found)

    def _attribute(self, node: ast.Attribute, here: Here) -> Value:
        source = source_of(node, self.module)
        if source is not None:
            return ((Slot(node, here.point, here.point, source),),)
        order = self.orders.unordered(node, here)
        if order is not None:
            return ((Slot(node, here.point, here.point, order),),)
        meaning = self.names.attribute(node, here)
        if meaning is not None:
            return self._named(self.meant(meaning), node, here)
        if is_self(node.value):
            scope = self.module.method(here.point.scope.home, node.attr)
            return self._imported(node, here) if scope is None else self.returned(scope, {}, here)
        if self.module.imported(node) is not None:
            return self._imported(node, here)
        inner = self.read(node.value, here)
        if node.attr not in TELLING or not has_source(inner):
            return self.unknown(node, here)
        return self.narrow(self.part_of(inner, node, here), node, here)

    def _subscript(self, node: ast.Subscript, here: Here) -> Value:
        source = source_of(node, self.module)
        if source is not None:
            return ((Slot(node, here.point, here.point, source),),)
        if self.module.imported(node.value) == "os.environ":
            return self.unknown(node, here)
        inner = self.read(node.value, here)
        if not has_source(inner) or any(slot.source and slot.source.pace == "order" for slot in each_slot(inner)):
            return self.unknown(node, here)
        if len(inner) == 1 and len(inner[0]) > 1 and isinstance(node.slice, ast.Slice):
            return inner
        return self.narrow(self.part_of(inner, node, here), node, here)

    # -- collections

    def _elements(self, node: ast.List | ast.Tuple, here: Here) -> Value:
        return joined(self.part(part, here) for part in node.elts)

    def _dict(self, node: ast.Dict, here: Here) -> Value:
        values: list[Value] = []
        for key, value in zip(node.keys, node.values, strict=True):
            values += [] if key is None else [self.part(key, here)]
            values.append(self.part(value, here))
        return joined(values)

    def _unordered(self, node: ast.expr, here: Here) -> Value:
        order = self.orders.unordered(node, here)
        return self.unknown(node, here) if order is None else ((Slot(node, here.point, here.point, order),),)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp, here: Here) -> Value:
        inner = here
        found: list[Value] = []
        for generator in node.generators:
            order = self.orders.unordered(generator.iter, inner)
            if order is not None and names_in(node.elt).intersection(targets_of(generator.target)):
                found.append(((Slot(generator.iter, here.point, here.point, order),),))
            bound = {name: Bound(generator.iter, inner, element=True) for name in targets_of(generator.target)}
            inner = inner.binding(bound)
        return joined((*found, self.part(node.elt, inner)))

    # -- functions of the module

    def returned(self, scope: Scope, bound: dict[str, Bound], here: Here) -> Value:
        """What a call of a function of this module gives; it is evaluated where the call stands."""
        if not scope.returns or here.too_deep or id(scope) in self._entered:
            return EMPTY
        self._entered.add(id(scope))
        try:
            value = one_of([self.read(node, here.at(point, bound)) for node, point in scope.returns])
        finally:
            self._entered.discard(id(scope))
        evaluated = self.start if is_cached(scope) else here.point
        return evaluated_at(evaluated, value)
