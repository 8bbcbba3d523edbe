"""Where statements of a module stand, and which of two comes first."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(eq=False, slots=True)
class Block:
    """A list of statements.

    Attributes:
        choice: the ``if`` or ``match`` that it is an arm of, of whose arms only one runs.
        leaves: ends with ``return``, ``raise``, ``break`` or ``continue``: what it sets is gone behind it.
    """

    choice: ast.stmt | None
    leaves: bool


@dataclass(eq=False, slots=True)
class Scope:
    """A module, a class body or a function.

    Attributes:
        name: dotted, as in ``Chat.ask``; empty for the module.
        home: the class that a method belongs to.
        definitions: by name, in the order of the source.
        returns: what a function returns or yields, and where.
        elsewhere: names that ``global`` or ``nonlocal`` hand to a scope around this one.
    """

    name: str
    node: ast.Module | ast.ClassDef | Function
    parent: Scope | None
    home: Scope | None = None
    definitions: dict[str, list[Definition]] = field(default_factory=dict)
    returns: list[tuple[ast.expr, Point]] = field(default_factory=list)
    elsewhere: set[str] = field(default_factory=set)

    @property
    def is_init(self) -> bool:
        return self.home is not None and self.name.endswith((".__init__", ".__post_init__"))


@dataclass(eq=False, slots=True)
class Point:
    """Where a statement stands.

    ::

        def ask():            block a
            x = 1             a0          a0 always runs before a2.b0
            if loud:          a1
                x = 2         a1.c0       c0 may have run before a2.b0
            while True:       a2
                send(x)       a2.b0

    Attributes:
        steps: block and index in it, from the scope's own block inwards.
        loops: around it in its scope, the innermost last.
        tests: of the ``if`` and ``while`` around it in its scope, the innermost last.
        order: number of the statement in the module.
    """

    scope: Scope
    steps: tuple[tuple[Block, int], ...]
    loops: tuple[Loop, ...]
    tests: tuple[ast.expr, ...]
    order: int
    line: int

    def always_before(self, later: Point) -> bool:
        """This statement has run whenever ``later``, behind it in the same scope, runs."""
        last = len(self.steps) - 1
        return last < len(later.steps) and all(
            mine[0] is other[0] and (mine[1] == other[1] or depth == last)
            for depth, (mine, other) in enumerate(zip(self.steps, later.steps, strict=False))
        )

    def may_reach(self, later: Point) -> bool:
        """What this statement, which stands before ``later`` in the same scope, has set can still hold there."""
        for depth, (mine, other) in enumerate(zip(self.steps, later.steps, strict=False)):
            if mine[0] is not other[0]:
                exclusive = mine[0].choice is not None and mine[0].choice is other[0].choice
                return not exclusive and not any(block.leaves for block, _ in self.steps[depth:])
            if mine[1] != other[1]:
                return not any(block.leaves for block, _ in self.steps[depth + 1 :])
        return not any(block.leaves for block, _ in self.steps[len(later.steps) :])


Kind = Literal["value", "add", "append", "element", "part", "parameter", "unknown"]


@dataclass(eq=False, slots=True)
class Definition:
    """A name gets a value.

    Attributes:
        kind: ``value`` is the value itself; ``add`` and ``append`` extend what was there; ``element`` is one of the
            value's elements, ``part`` an unknown part of it; ``parameter`` has its default as the value.
        value: ``None`` where it says nothing.
    """

    name: str
    kind: Kind
    value: ast.expr | None
    point: Point

    @property
    def extends(self) -> bool:
        return self.kind in ("add", "append")


def reaching(definitions: list[Definition], point: Point) -> list[Definition]:
    """Those that may hold at ``point``, the latest first; extensions come before what they extend.

    Where none stands before the point, it stands in a loop or a function that is called later: then all may hold.
    """
    found: list[Definition] = []
    for definition in reversed(definitions):
        if definition.point.order >= point.order or not definition.point.may_reach(point):
            continue
        found.append(definition)
        if not definition.extends and definition.point.always_before(point):
            return found
    return found or [definition for definition in reversed(definitions) if definition.point is not point]
