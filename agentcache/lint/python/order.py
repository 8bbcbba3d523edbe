"""Collections whose order nobody has chosen: sets, and the entries of folders."""

from __future__ import annotations

import ast

from agentcache.lint.python.module import Module, last_word
from agentcache.lint.python.names import Here, Meaning, Names, latest
from agentcache.lint.python.places import Definition
from agentcache.lint.python.sources import Source, is_seeded

_WRAPPERS = {"list", "tuple", "enumerate", "reversed", "iter"}
_SET_METHODS = {"union", "intersection", "difference", "symmetric_difference"}
_FOLDER_CALLS = {"os.listdir", "os.scandir", "glob.glob", "glob.iglob"}
_TEXT_METHODS = {
    "lower",
    "upper",
    "strip",
    "title",
    "format",
    "join",
    "casefold",
    "capitalize",
    "removeprefix",
    "removesuffix",
}


class Orders:
    """Says of an expression whether its order differs from process to process or from machine to machine."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._module: Module = names.module

    def unordered(self, node: ast.expr, here: Here) -> Source | None:
        """The collection that lost its order; its ``wrap`` is the expression at this place that could be sorted."""
        owner = self._names.program.reader_at(here.point).orders
        if owner is not self:
            return owner.unordered(node, here)
        if here.too_deep:
            return None
        if isinstance(node, ast.Set):
            return self._literal(node)
        if isinstance(node, ast.SetComp):
            return _set(node, _is_text(node.elt))
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            return self.unordered(node.generators[0].iter, here)
        if isinstance(node, ast.Call):
            return self._call(node, here)
        if isinstance(node, ast.BinOp):
            return self._operation(node, here)
        if isinstance(node, ast.Name | ast.Attribute):
            return self._named(node, here)
        if isinstance(node, ast.Starred):
            return self.unordered(node.value, here)
        return None

    def _literal(self, node: ast.Set) -> Source | None:
        values = [part.value for part in node.elts if isinstance(part, ast.Constant)]
        numbers = len(values) == len(node.elts) and all(isinstance(value, int | float) for value in values)
        if numbers or (len(node.elts) < 2 and not isinstance(node.elts[0], ast.Starred)):
            return None
        return _set(node, all(_is_text(part) for part in node.elts))

    def _call(self, node: ast.Call, here: Here) -> Source | None:
        name = self._module.imported(node.func)
        word = last_word(node.func)
        if name in ("set", "frozenset"):
            return self._made(node)
        if name in _WRAPPERS and node.args:
            return self.unordered(node.args[0], here)
        if name in ("map", "filter") and len(node.args) == 2:
            return self.unordered(node.args[1], here)
        if name in _FOLDER_CALLS:
            return _folder(node, sortable=name != "os.scandir")
        if isinstance(node.func, ast.Attribute):
            if word in ("iterdir", "rglob") or (word == "glob" and name is None and _is_pattern(node)):
                return _folder(node)
            if word in _SET_METHODS or (word == "copy" and not node.args):
                inner = self.unordered(node.func.value, here)
                return None if inner is None or "set" not in inner.thing else _set(node, inner.sortable)
        scope = self._names.function(node.func, here)
        if scope is None:
            imported = self._names.imported(node.func, here)
            scope = None if imported is None else imported.function
        if scope is None or not scope.returns:
            return None
        found = [self.unordered(value, here.at(point, {})) for value, point in scope.returns]
        return None if any(source is None for source in found) else _at(found[0], node)

    def _made(self, node: ast.Call) -> Source | None:
        if not node.args:
            return _set(node, False)
        made_of = node.args[0]
        if isinstance(made_of, ast.List | ast.Tuple | ast.Set):
            if all(isinstance(part, ast.Constant) and isinstance(part.value, int | float) for part in made_of.elts):
                return None
            return _set(node, all(_is_text(part) for part in made_of.elts)) if len(made_of.elts) > 1 else None
        if isinstance(made_of, ast.Call) and last_word(made_of.func) == "range":
            return None
        split = isinstance(made_of, ast.Call) and last_word(made_of.func) in ("split", "splitlines", "findall")
        inner = isinstance(made_of, ast.ListComp | ast.GeneratorExp) and _is_text(made_of.elt)
        return _set(node, split or inner)

    def _operation(self, node: ast.BinOp, here: Here) -> Source | None:
        if isinstance(node.op, ast.Add):
            return self.unordered(node.left, here) or self.unordered(node.right, here)
        if not isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
            return None
        left = self.unordered(node.left, here)
        right = None if isinstance(node.op, ast.Sub) else self.unordered(node.right, here)
        keys = _is_keys(node.left) or (_is_keys(node.right) and left is not None)
        sources = [source for source in (left, right) if source is not None and "set" in source.thing]
        if not sources and not keys:
            return None
        return _set(node, bool(sources) and all(source.sortable for source in sources))

    def _named(self, node: ast.Name | ast.Attribute, here: Here) -> Source | None:
        if isinstance(node, ast.Name) and node.id in here.bound:
            bound = here.bound[node.id]
            return None if bound.element else _at(self.unordered(bound.value, bound.here.at(bound.here.point)), node)
        found: Meaning | None
        if isinstance(node, ast.Name):
            found = self._names.meaning(node.id, here)
        else:
            found = self._names.attribute(node, here)
        imported = self._names.imported(node, here) if found is None else None
        if imported is not None and imported.definitions:
            found = Meaning(tuple(latest(list(imported.definitions))), here, False)
        if found is None or self.is_sorted(node):
            return None
        plain = [definition for definition in found.definitions if not definition.extends]
        sources = [self._defined(definition, found) for definition in plain]
        if not sources or any(source is None for source in sources):
            return None
        sortable = all(source is not None and source.sortable for source in sources)
        source = _at(sources[0], node)
        return None if source is None else Source(source.code, source.thing, source.pace, source.node, node, sortable)

    def _defined(self, definition: Definition, found: Meaning) -> Source | None:
        if definition.kind == "parameter":
            return self._annotated(definition)
        if definition.kind != "value" or definition.value is None:
            return None
        return self.unordered(definition.value, found.at(definition))

    def _annotated(self, definition: Definition) -> Source | None:
        """A parameter that is annotated as a set."""
        node = definition.point.scope.node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            note = argument.annotation
            if argument.arg != definition.name or not isinstance(note, ast.Subscript):
                continue
            if last_word(note.value).lower() in ("set", "frozenset", "abstractset") and last_word(note.slice) != "int":
                return _set(note, last_word(note.slice) == "str")
        return None

    def shuffled(self, node: ast.Name, here: Here) -> Source | None:
        """A list that ``random.shuffle`` has gone over in the same function."""
        for call, point in self._module.callers.get("shuffle", ()):
            mixed = call.args[0] if call.args else None
            same = isinstance(mixed, ast.Name) and mixed.id == node.id and point.scope is here.point.scope
            if same and self._module.imported(call.func) == "random.shuffle" and not is_seeded(self._module):
                return Source("AC103", "a random order", "instant", call)
        return None

    def is_sorted(self, node: ast.expr) -> bool:
        """Somewhere in the module it is sorted in place."""
        text = self._module.dotted(node)
        sorts = self._module.callers.get("sort", ())
        return any(
            isinstance(call.func, ast.Attribute) and self._module.dotted(call.func.value) == text for call, _ in sorts
        )


def _set(node: ast.expr, sortable: bool) -> Source:
    return Source("AC203", "the order of a set", "order", node, node, sortable)


def _folder(node: ast.expr, sortable: bool = True) -> Source:
    return Source("AC203", "the order of a folder's entries", "order", node, node, sortable)


def _at(source: Source | None, wrap: ast.expr) -> Source | None:
    if source is None:
        return None
    return Source(source.code, source.thing, source.pace, source.node, wrap, source.sortable)


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id in ("str", "repr")
        return last_word(node.func) in _TEXT_METHODS
    return False


def _is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_word(node.func) == "keys" and not node.args


def _is_pattern(node: ast.Call) -> bool:
    first = node.args[0] if node.args else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and "*" in first.value
