"""What a module is made of, collected in one pass: scopes, definitions, calls, dicts, imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from agentcache.lint.python.places import Block, Definition, Function, Kind, Loop, Point, Scope

_EXTENDERS = {"append", "extend", "insert", "appendleft", "update", "add", "write"}
_BLOCKS = {"body", "orelse", "finalbody", "handlers", "cases"}
_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue)


@dataclass(frozen=True, slots=True)
class Placing:
    """What an expression is part of.

    Attributes:
        owner: a list or tuple, ``left + right``, or a call of ``append``, ``insert`` …
        index: of the element or argument; 1 for what is added on the right.
    """

    owner: ast.expr
    index: int


@dataclass(eq=False)
class Module:
    """A parsed source.

    Attributes:
        scopes: the module's own first.
        functions: by their own name; those that are defined twice have two.
        imports: name in the module -> dotted name of what it stands for.
        calls, dicts, pairs, lists, statements: with the place of their statements, in the order of the source.
        pairs: tuples of two that stand in a list.
        callers: calls by the last word of what is called.
        placings: of dicts, lists, and calls: by ``id`` of the node.
        attributes: class -> name -> what ``self.name`` is set to in its methods and its body.
        stars: ``app.texts.`` for ``from app.texts import *``.
        path: of its file; ``None``: not known.
        worth_reading: it has something to do with prompts.
    """

    tree: ast.Module
    scopes: list[Scope] = field(default_factory=list)
    functions: dict[str, list[Scope]] = field(default_factory=dict)
    classes: dict[str, Scope] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[ast.Call, Point]] = field(default_factory=list)
    dicts: list[tuple[ast.Dict, Point]] = field(default_factory=list)
    pairs: list[tuple[ast.Tuple, Point]] = field(default_factory=list)
    lists: list[tuple[ast.List, Point]] = field(default_factory=list)
    statements: list[tuple[ast.stmt, Point]] = field(default_factory=list)
    callers: dict[str, list[tuple[ast.Call, Point]]] = field(default_factory=dict)
    placings: dict[int, Placing] = field(default_factory=dict)
    attributes: dict[Scope, dict[str, list[Definition]]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    path: Path | None = None
    worth_reading: bool = True

    def dotted(self, node: ast.expr) -> str | None:
        """``openai.chat.create`` for names joined by dots, imported names written out; ``None`` for anything else."""
        words: list[str] = []
        while isinstance(node, ast.Attribute):
            words.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        words.append(self.imports.get(node.id, node.id))
        return ".".join(reversed(words))

    def imported(self, node: ast.expr) -> str | None:
        """As ``dotted``, for what comes from another module or is a builtin that no one here has redefined."""
        head = node
        while isinstance(head, ast.Attribute):
            head = head.value
        if not isinstance(head, ast.Name):
            return None
        if head.id not in self.imports and (head is not node or head.id in self.functions or head.id in self.classes):
            return None
        return self.dotted(node)

    def method(self, home: Scope | None, name: str) -> Scope | None:
        """The method of a class or of one of its bases in this module."""
        for _ in range(8):
            if home is None:
                return None
            for scope in self.functions.get(name, ()):
                if scope.home is home:
                    return scope
            home = self.base_of(home)
        return None

    def base_of(self, home: Scope) -> Scope | None:
        if not isinstance(home.node, ast.ClassDef):
            return None
        names = [base.id for base in home.node.bases if isinstance(base, ast.Name)]
        return next(
            (self.classes[name] for name in names if name in self.classes and self.classes[name] is not home), None
        )

    def attribute(self, home: Scope | None, name: str) -> list[Definition]:
        """What ``self.name`` is set to in a class, or in the nearest of its bases that sets it."""
        for _ in range(8):
            if home is None:
                return []
            found = self.attributes.get(home, {}).get(name)
            if found:
                return found
            home = self.base_of(home)
        return []


def last_word(node: ast.expr) -> str:
    """``create`` for ``client.chat.create``; empty for what has no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def item_of(node: ast.Dict, name: str) -> ast.expr | None:
    """The value at a key that is written out."""
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == name:
            return value
    return None


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def index_module(tree: ast.Module) -> Module:
    """Read a module once, without running any of it."""
    module = Module(tree)
    _Indexer(module).enter(Scope("", tree, None))
    return module


class _Around(NamedTuple):
    """What stands around a block: the attributes of its points."""

    scope: Scope
    steps: tuple[tuple[Block, int], ...] = ()
    loops: tuple[Loop, ...] = ()
    tests: tuple[ast.expr, ...] = ()


class _Indexer:
    def __init__(self, module: Module) -> None:
        self._module = module
        self._order = 0

    def enter(self, scope: Scope) -> None:
        self._module.scopes.append(scope)
        self._block(scope.node.body, _Around(scope))

    def _block(self, statements: Sequence[ast.stmt], around: _Around, choice: ast.stmt | None = None) -> None:
        if not statements:
            return
        block = Block(choice, isinstance(statements[-1], _LEAVING))
        for index, statement in enumerate(statements):
            self._order += 1
            steps = (*around.steps, (block, index))
            point = Point(around.scope, steps, around.loops, around.tests, self._order, statement.lineno)
            self._module.statements.append((statement, point))
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(statement, point)
            elif isinstance(statement, ast.ClassDef):
                self._class(statement, point)
            else:
                self._statement(statement, point)

    def _function(self, node: Function, point: Point) -> None:
        outer = point.scope
        name = f"{outer.name}.{node.name}" if outer.name else node.name
        scope = Scope(name, node, outer, outer if isinstance(outer.node, ast.ClassDef) else outer.home)
        self._module.functions.setdefault(node.name, []).append(scope)
        for decorator in node.decorator_list:
            self._expressions(decorator, point)
        arguments = node.args
        listed = [*arguments.posonlyargs, *arguments.args]
        defaults: list[ast.expr | None] = [None] * (len(listed) - len(arguments.defaults))
        entry = Point(scope, (), (), (), self._order, node.lineno)
        pairs = [
            *zip(listed, [*defaults, *arguments.defaults], strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
            *((extra, None) for extra in (arguments.vararg, arguments.kwarg) if extra is not None),
        ]
        for argument, default in pairs:
            if default is not None:
                self._expressions(default, point)
            scope.definitions[argument.arg] = [Definition(argument.arg, "parameter", default, entry)]
        self.enter(scope)

    def _class(self, node: ast.ClassDef, point: Point) -> None:
        name = f"{point.scope.name}.{node.name}" if point.scope.name else node.name
        scope = Scope(name, node, point.scope)
        self._module.classes.setdefault(node.name, scope)
        for part in (*node.bases, *node.decorator_list, *(keyword.value for keyword in node.keywords)):
            self._expressions(part, point)
        self.enter(scope)
        if scope.definitions:
            own = self._module.attributes.setdefault(scope, {})
            for attribute, definitions in scope.definitions.items():
                own[attribute] = [*definitions, *own.get(attribute, ())]

    def _statement(self, node: ast.stmt, point: Point) -> None:
        for name, value in ast.iter_fields(node):
            if name in _BLOCKS:
                continue
            for part in value if isinstance(value, list) else (value,):
                if isinstance(part, ast.AST):
                    self._expressions(part, point)
        self._define(node, point)
        self._inside(node, point)

    def _inside(self, node: ast.stmt, point: Point) -> None:
        around = _Around(point.scope, point.steps, point.loops, point.tests)
        if isinstance(node, ast.If):
            tested = around._replace(tests=(*point.tests, node.test))
            self._block(node.body, tested, node)
            self._block(node.orelse, tested, node)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._block(node.body, around._replace(loops=(*point.loops, node)))
            self._block(node.orelse, around)
        elif isinstance(node, ast.While):
            self._block(node.body, around._replace(loops=(*point.loops, node), tests=(*point.tests, node.test)))
            self._block(node.orelse, around)
        elif isinstance(node, ast.With | ast.AsyncWith):
            self._block(node.body, around)
        elif isinstance(node, ast.Match):
            tested = around._replace(tests=(*point.tests, node.subject))
            for case in node.cases:
                self._block(case.body, tested, node)
        elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            self._try(node, around)

    def _try(self, node: Any, around: _Around) -> None:
        for part in (node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody):
            self._block(part, around)

    def _define(self, node: ast.stmt, point: Point) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, "value", point)
        elif isinstance(node, ast.AnnAssign):
            self._assign(node.target, node.value, "value", point)
        elif isinstance(node, ast.AugAssign):
            self._assign(node.target, node.value, "add", point)
        elif isinstance(node, ast.For | ast.AsyncFor):
            inside = replace(point, loops=(*point.loops, node))
            self._assign(node.target, node.iter, "element", inside)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                if item.optional_vars is not None:
                    self._assign(item.optional_vars, item.context_expr, "value", point)
        elif isinstance(node, ast.Return):
            if node.value is not None:
                point.scope.returns.append((node.value, point))
        elif isinstance(node, ast.Global | ast.Nonlocal):
            point.scope.elsewhere.update(node.names)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        source = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module and not node.level else ""
        if isinstance(node, ast.ImportFrom) and node.level:
            source = "." * node.level + (f"{node.module}." if node.module else "")
        for alias in node.names:
            if alias.name == "*":
                self._module.stars.append(source)
            elif alias.asname:
                self._module.imports[alias.asname] = source + alias.name
            else:
                first = alias.name.partition(".")[0]
                self._module.imports[first] = source + (alias.name if source else first)

    def _assign(self, target: ast.expr, value: ast.expr | None, kind: Kind, point: Point) -> None:
        if isinstance(target, ast.Name):
            self._add(point.scope, Definition(target.id, kind, value, point))
        elif isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) and kind == "value"
            for index, part in enumerate(target.elts):
                if same and isinstance(value, ast.Tuple | ast.List):
                    self._assign(part, value.elts[index], kind, point)
                else:
                    self._assign(part, value, "part", point)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, value, "part", point)
        elif isinstance(target, ast.Attribute) and is_self(target.value) and point.scope.home is not None:
            own = self._module.attributes.setdefault(point.scope.home, {})
            own.setdefault(target.attr, []).append(Definition(target.attr, kind, value, point))

    def _add(self, scope: Scope, definition: Definition) -> None:
        while definition.name in scope.elsewhere and scope.parent is not None:
            scope = scope.parent
        scope.definitions.setdefault(definition.name, []).append(definition)

    def _expressions(self, top: ast.AST, point: Point) -> None:
        stack = [top]
        while stack:
            node = stack.pop()
            kind = type(node)
            if kind is ast.Name or kind is ast.Constant:
                continue
            if kind is ast.Call:
                self._call(node, point)  # type: ignore[arg-type]
            elif kind is ast.Dict:
                self._module.dicts.append((node, point))  # type: ignore[arg-type]
            elif kind is ast.List:
                self._list(node, point)  # type: ignore[arg-type]
            elif isinstance(node, ast.BinOp):
                self._module.placings[id(node.left)] = Placing(node, 0)
                self._module.placings[id(node.right)] = Placing(node, 1)
            elif isinstance(node, ast.NamedExpr):
                self._assign(node.target, node.value, "value", point)
            elif isinstance(node, ast.Yield) and node.value is not None:
                point.scope.returns.append((node.value, point))
            stack.extend(_children(node))

    def _list(self, node: ast.List, point: Point) -> None:
        self._module.lists.append((node, point))
        for index, element in enumerate(node.elts):
            self._module.placings[id(element)] = Placing(node, index)
            if isinstance(element, ast.Tuple) and len(element.elts) == 2:
                self._module.pairs.append((element, point))

    def _call(self, node: ast.Call, point: Point) -> None:
        self._module.calls.append((node, point))
        word = last_word(node.func)
        self._module.callers.setdefault(word, []).append((node, point))
        if word not in _EXTENDERS or not isinstance(node.func, ast.Attribute):
            return
        for index, argument in enumerate(node.args):
            self._module.placings[id(argument)] = Placing(node, index)
        target = node.func.value
        if isinstance(target, ast.Name) and node.args:
            value = node.args[-1]
            self._add(point.scope, Definition(target.id, "append", value, point))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            for item in value:
                if isinstance(item, ast.AST):
                    yield item
        elif isinstance(value, ast.AST):
            yield value
