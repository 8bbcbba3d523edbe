"""A source with the modules that it imports: what imported names stand for, and who reads which module."""

from __future__ import annotations

import ast
import builtins
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentcache.lint.python.module import Module
from agentcache.lint.python.modules import ModuleFinder
from agentcache.lint.python.places import Definition, Point, Scope

if TYPE_CHECKING:
    from agentcache.lint.python.reading import Reader

_MOST_FILES = 60
_FARTHEST = 3


@dataclass(frozen=True, slots=True)
class Import:
    """What an imported name stands for.

    Attributes:
        function: ``None``: it is a value.
        definitions: of the value.
        made: the class, where the name is one.
    """

    module: Module
    function: Scope | None = None
    definitions: tuple[Definition, ...] = ()
    made: Scope | None = None


class Program:
    """The modules that are read for one check.

    Args:
        finder: ``None``: imports are not followed.
    """

    def __init__(self, module: Module, finder: ModuleFinder | None) -> None:
        self.module = module
        self.steps = 0
        self.nesting = 0
        self._finder = finder
        self._readers: dict[int, Reader] = {}
        self._distances: dict[int, int] = {id(module): 0}
        self._roots: dict[int, Module] = {}
        self._nodes: dict[int, set[int]] = {}
        self.others: list[Module] = []

    def add(self, reader: Reader) -> None:
        self._readers[id(reader.module.scopes[0])] = reader

    def reader_at(self, point: Point) -> Reader:
        """Who reads the module of a statement."""
        scope = point.scope
        while scope.parent is not None:
            scope = scope.parent
        return self._readers.get(id(scope)) or self.reader_of(self._roots[id(scope)])

    def reader_of(self, module: Module) -> Reader:
        known = self._readers.get(id(module.scopes[0]))
        return known or self._readers[id(self.module.scopes[0])].beside(module)

    def lookup(self, module: Module, node: ast.expr) -> Import | None:
        """What a name, or names joined by dots, that ``module`` imports stands for in another file of the project."""
        dotted = module.imported(node) if isinstance(node, ast.Name | ast.Attribute) else None
        head = node
        while isinstance(head, ast.Attribute):
            head = head.value
        if dotted is None or not isinstance(head, ast.Name):
            return None
        if head.id in module.imports:
            return self._resolved(module, dotted, 0)
        return self._of_stars(module, dotted, 0) if not hasattr(builtins, head.id) else None

    def _of_stars(self, module: Module, dotted: str, hops: int) -> Import | None:
        found = (self._resolved(module, star + dotted, hops) for star in module.stars)
        return next((each for each in found if each is not None), None)

    def inherited(self, module: Module, home: Scope | None, name: str) -> Import | None:
        """``self.name`` where it comes from a base class in another file."""
        for base in home.node.bases if home is not None and isinstance(home.node, ast.ClassDef) else ():
            found = self.lookup(module, base)
            if found is None or found.made is None:
                continue
            function = found.module.method(found.made, name)
            if function is not None:
                return Import(found.module, function)
            definitions = found.module.attribute(found.made, name)
            if definitions:
                return Import(found.module, definitions=tuple(definitions))
        return None

    def method(self, module: Module, receiver: ast.expr, name: str) -> Import | None:
        """The method of ``Prompts().name``, where ``Prompts`` is an imported class."""
        found = self.lookup(module, receiver.func) if isinstance(receiver, ast.Call) else None
        if found is None or found.made is None:
            return None
        function = found.module.method(found.made, name)
        return None if function is None else Import(found.module, function)

    def _resolved(self, module: Module, dotted: str, hops: int) -> Import | None:
        if self._finder is None or module.path is None or hops > _FARTHEST:
            return None
        for path, words in self._finder.places(dotted, module.path):
            other = self._loaded(path, self._distances.get(id(module), 0) + 1)
            found = None if other is None or not words else self._inside(other, words, hops)
            if found is not None:
                return found
        return None

    def _loaded(self, path: Path, distance: int) -> Module | None:
        if path == self.module.path:
            return self.module
        if self._finder is None or distance > _FARTHEST:
            return None
        other = self._finder.module(path)
        if other is not None and id(other) not in self._distances:
            if len(self.others) >= _MOST_FILES:
                return None
            self.others.append(other)
            self._distances[id(other)] = distance
            self._roots[id(other.scopes[0])] = other
        return other

    def _inside(self, module: Module, words: tuple[str, ...], hops: int) -> Import | None:
        scope, name = module.scopes[0], words[0]
        if len(words) == 2 and name in module.classes:
            scope, name = module.classes[name], words[1]
            function = module.method(scope, name)
            if function is not None:
                return Import(module, function)
        elif len(words) > 1:
            return self._again(module, words, hops)
        if name in scope.definitions:
            return Import(module, definitions=tuple(scope.definitions[name]))
        if name in module.classes and module.classes[name].parent is scope:
            return Import(module, made=module.classes[name])
        functions = [found for found in module.functions.get(name, ()) if found.parent is scope]
        if functions:
            return Import(module, functions[0]) if len(functions) == 1 else None
        return self._again(module, words, hops)

    def _again(self, module: Module, words: tuple[str, ...], hops: int) -> Import | None:
        """The module has the name from another one."""
        source = module.imports.get(words[0])
        if source is None:
            return self._of_stars(module, ".".join(words), hops + 1)
        return self._resolved(module, ".".join((source, *words[1:])), hops + 1)

    # -- where things stand

    def home_of(self, node: ast.AST) -> Module:
        """The module that a node is of."""
        for module in self.others:
            if id(module) not in self._nodes:
                self._nodes[id(module)] = {id(part) for part in ast.walk(module.tree)}
            if id(node) in self._nodes[id(module)]:
                return module
        return self.module

    def place_of(self, node: ast.expr) -> str:
        """``line 7``, or ``line 7 of app/texts.py``."""
        home = self.home_of(node)
        if home is self.module or home.path is None:
            return f"line {node.lineno}"
        path = os.path.relpath(home.path) if home.path.is_relative_to(Path.cwd()) else str(home.path)
        return f"line {node.lineno} of {path}"

    def linted(self) -> Iterator[Module]:
        """The other modules that are checked as well."""
        return (module for module in self.others if self._finder is not None and self._finder.is_linted(module))

    def beginning_at(self, module: Module) -> Program:
        """For the check of another module with the same files."""
        return Program(module, self._finder)
