"""What names, attributes and calls stand for inside a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agentcache.lint.python.module import Module, is_self
from agentcache.lint.python.places import Definition, Point, Scope, reaching
from agentcache.lint.python.program import Import, Program

_DEEPEST = 14
_COMMON = {
    "get",
    "format",
    "join",
    "run",
    "create",
    "send",
    "append",
    "copy",
    "read",
    "write",
    "items",
    "keys",
    "values",
}


@dataclass(frozen=True)
class Bound:
    """What a parameter or a comprehension's variable stands for.

    Attributes:
        element: it is one of the elements of ``value``.
    """

    value: ast.expr
    here: Here
    element: bool = False


@dataclass(frozen=True)
class Here:
    """Where an expression is read.

    Attributes:
        bound: parameters of the call that is followed, and variables of comprehensions around it.
        depth: how many definitions and calls were followed to get here.
    """

    point: Point
    bound: Mapping[str, Bound] = field(default_factory=dict)
    depth: int = 0

    def at(self, point: Point, bound: Mapping[str, Bound] | None = None) -> Here:
        return Here(point, self.bound if bound is None else bound, self.depth + 1)

    def binding(self, more: Mapping[str, Bound]) -> Here:
        return Here(self.point, {**self.bound, **more}, self.depth)

    @property
    def too_deep(self) -> bool:
        return self.depth > _DEEPEST


@dataclass(frozen=True)
class Meaning:
    """What a name may stand for: its definitions, the latest first.

    Attributes:
        near: they stand in the scope that the name is read in.
    """

    definitions: tuple[Definition, ...]
    here: Here
    near: bool

    def at(self, definition: Definition) -> Here:
        return self.here.at(definition.point, None if self.near else {})


class Names:
    """Looks names up."""

    def __init__(self, module: Module, program: Program) -> None:
        self.module = module
        self.program = program

    def meaning(self, name: str, here: Here) -> Meaning | None:
        """``None``: it comes from outside the module."""
        scope: Scope | None = here.point.scope
        first = True
        while scope is not None:
            found = scope.definitions.get(name)
            if found and (first or not isinstance(scope.node, ast.ClassDef)):
                near = scope is here.point.scope
                chosen = reaching(found, here.point) if near else latest(found)
                return Meaning(tuple(chosen), here, near)
            scope, first = scope.parent, False
        return None

    def attribute(self, node: ast.Attribute, here: Here) -> Meaning | None:
        """What ``self.name`` is set to in this class."""
        if not is_self(node.value):
            return None
        found = self.module.attribute(here.point.scope.home, node.attr)
        inside = [definition for definition in found if definition.point.scope is here.point.scope]
        before = [definition for definition in inside if definition.point.order < here.point.order]
        if before:
            return Meaning(tuple(reaching(inside, here.point)), here, True)
        return Meaning(tuple(latest(found)), here, False) if found else None

    def function(self, node: ast.expr, here: Here) -> Scope | None:
        """The function of this module that ``node`` is, if there is no doubt."""
        if isinstance(node, ast.Name):
            found = [scope for scope in self.module.functions.get(node.id, ()) if scope.home is None]
            return found[0] if len(found) == 1 and node.id not in here.bound else None
        if not isinstance(node, ast.Attribute):
            return None
        if is_self(node.value):
            return self.module.method(here.point.scope.home, node.attr)
        if isinstance(node.value, ast.Name) and node.value.id in self.module.classes:
            return self.module.method(self.module.classes[node.value.id], node.attr)
        found = [scope for scope in self.module.functions.get(node.attr, ()) if scope.home is not None]
        unknown = self.module.imported(node.value) is None
        return found[0] if len(found) == 1 and unknown and node.attr not in _COMMON else None

    def imported(self, node: ast.expr, here: Here) -> Import | None:
        """What ``node`` is in another file of the project."""
        if isinstance(node, ast.Attribute) and is_self(node.value):
            return self.program.inherited(self.module, here.point.scope.home, node.attr)
        found = self.program.lookup(self.module, node)
        if found is None and isinstance(node, ast.Attribute):
            return self._of_instance(node, here)
        return found

    def _of_instance(self, node: ast.Attribute, here: Here) -> Import | None:
        """``Prompts().text``, ``prompts.text`` and ``self.prompts.text`` with ``prompts = Prompts()``."""
        receiver: ast.expr | None = node.value
        meaning: Meaning | None = None
        if isinstance(receiver, ast.Name) and receiver.id not in here.bound:
            meaning = self.meaning(receiver.id, here)
        elif isinstance(receiver, ast.Attribute):
            meaning = self.attribute(receiver, here)
        if meaning is not None:
            receiver = meaning.definitions[0].value if len(meaning.definitions) == 1 else None
        return None if receiver is None else self.program.method(self.module, receiver, node.attr)

    def calls_of(self, scope: Scope) -> Iterator[tuple[ast.Call, Point]]:
        """Calls of a function in this module, its recursive ones left out."""
        name = scope.name.rpartition(".")[2]
        if scope.is_init and scope.home is not None:
            name = scope.home.name.rpartition(".")[2]
        for call, point in self.module.callers.get(name, ()):
            if point.scope is not scope and (scope.is_init or self.function(call.func, Here(point)) is scope):
                yield call, point


def latest(definitions: list[Definition]) -> list[Definition]:
    """Those that hold when all have run, the latest first."""
    found: list[Definition] = []
    for definition in reversed(definitions):
        found.append(definition)
        plain = not definition.point.tests and not definition.point.loops
        if not definition.extends and plain and definition.value is not None:
            break
    return found


def arguments_of(call: ast.Call, scope: Scope, here: Here) -> dict[str, Bound]:
    """What the parameters of a function stand for in a call of it; those that the call does not name are left out."""
    node = scope.node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {}
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    static = any(isinstance(part, ast.Name) and part.id == "staticmethod" for part in node.decorator_list)
    if isinstance(scope.parent and scope.parent.node, ast.ClassDef) and not static:
        names = names[1:]
    bound: dict[str, Bound] = {}
    for name, value in zip(names, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        bound[name] = Bound(value, here)
    known = {*names, *(argument.arg for argument in node.args.kwonlyargs)}
    bound.update({word.arg: Bound(word.value, here) for word in call.keywords if word.arg in known and word.arg})
    return bound


def targets_of(target: ast.expr) -> Iterator[str]:
    """The names that a loop sets."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from targets_of(part)
    elif isinstance(target, ast.Starred):
        yield from targets_of(target.value)


def names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def summands(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of ``a + b + c`` from the left, without recursion: generated code has thousands."""
    found: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        found.append(node.right)
        node = node.left
    found.append(node)
    return reversed(found)


_CACHES = {"cache", "lru_cache", "cached_property", "cached"}


def is_cached(scope: Scope) -> bool:
    """A function that is run once for the same arguments."""
    node = scope.node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    parts = [part.func if isinstance(part, ast.Call) else part for part in node.decorator_list]
    return any((part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")) in _CACHES for part in parts)


def parameter_node(definition: Definition, here: Here) -> ast.expr:
    """The parameter as an expression, for findings to point at."""
    node = here.point.scope.node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if argument.arg == definition.name:
                return ast.copy_location(ast.Name(definition.name, ast.Load()), argument)
    return ast.Name(definition.name, ast.Load(), lineno=here.point.line, col_offset=0)
