"""Reads what a module imports from another file of the project."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from agentcache.lint.python.names import Bound, Here, Meaning, latest
from agentcache.lint.python.program import Import
from agentcache.lint.python.texts import EMPTY, Piece, Slot, Value

if TYPE_CHECKING:
    from agentcache.lint.python.reading import Reader


def elsewhere(
    reader: Reader, found: Import, node: ast.expr, here: Here, bound: Mapping[str, Bound] | None = None
) -> Value:
    """What is imported, with all that varies in it where ``node`` uses it: that is where this file can mend it."""
    if here.too_deep:
        return EMPTY
    owner = reader.program.reader_of(found.module)
    if found.function is not None:
        value = owner.returned(found.function, dict(bound or {}), here)
    else:
        start = Here(owner.start, {}, here.depth + 1)
        value = owner.meant(Meaning(tuple(latest(list(found.definitions))), start, False))
    given = {
        reader.label(each.value, each.here) for each in (bound or {}).values() if reader.is_given(each.value, each.here)
    }
    return tuple(tuple(_moved(reader, piece, node, here, given) for piece in text) for text in value)


def _moved(reader: Reader, piece: Piece, node: ast.expr, here: Here, given: Set[str]) -> Piece:
    """What the other module calls its own things says nothing here; what it was given keeps its name."""
    if not isinstance(piece, Slot) or reader.program.reader_at(piece.point) is reader:
        return piece
    source = None if piece.source is None else replace(piece.source, wrap=None)
    named = piece.given and not given.isdisjoint(piece.label.split())
    label = piece.label if named else ""
    return replace(piece, node=node, point=here.point, source=source, sure=False, label=label, given=named)
