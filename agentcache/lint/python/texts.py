"""Texts as far as a source shows them: what is written out, and the slots that are filled in when the program runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from agentcache.lint.python.places import Point
from agentcache.lint.python.sources import Source


@dataclass(frozen=True, slots=True)
class Words:
    """Text that is the same in every run."""

    text: str


@dataclass(frozen=True, slots=True)
class Slot:
    """Text that the program fills in.

    Attributes:
        node: the expression that stands in the composed text.
        point: of the statement that composes it.
        evaluated: of the statement that computes the value.
        source: what varies in it; ``None`` when nothing is known to.
        sure: it is there in every run that gets so far, and all of its way lies in one function.
        label: what the program calls it, such as ``user.name``; empty where it has no name.
        given: it is a parameter, or comes out of one.
    """

    node: ast.expr
    point: Point
    evaluated: Point
    source: Source | None = None
    sure: bool = True
    label: str = ""
    given: bool = False


Piece: TypeAlias = "Words | Slot"
Text: TypeAlias = "tuple[Piece, ...]"
Value: TypeAlias = "tuple[Text, ...]"
"""The texts that it can be, the most telling first."""

EMPTY: Value = ((),)
_MOST_TEXTS = 4
_MOST_PIECES = 120


def words(text: str) -> Value:
    return ((Words(text),),) if text else EMPTY


def one_of(values: Iterable[Value]) -> Value:
    """It is one of several texts; a slot that not all of them have is not sure."""
    distinct = list(dict.fromkeys(text for value in values for text in value))
    if len(distinct) < 2:
        return tuple(distinct) or EMPTY
    return tuple(sorted((unsure(text) for text in distinct), key=_rank)[:_MOST_TEXTS])


def joined(values: Iterable[Value]) -> Value:
    """One text behind the other."""
    texts: list[Text] = [()]
    for value in values:
        texts = [(*before, *after) for before in texts for after in value if len(before) < _MOST_PIECES]
        if len(texts) > _MOST_TEXTS:
            texts = sorted(texts, key=_rank)[:_MOST_TEXTS]
    return tuple(texts) or EMPTY


def unsure(text: Text) -> Text:
    return tuple(replace(piece, sure=False) if isinstance(piece, Slot) and piece.sure else piece for piece in text)


def each_slot(value: Value) -> Iterable[Slot]:
    return (piece for text in value for piece in text if isinstance(piece, Slot))


def has_source(value: Value) -> bool:
    return any(slot.source is not None for slot in each_slot(value))


def evaluated_at(point: Point, value: Value) -> Value:
    """The same, worked out by a call in the statement at ``point``."""
    return tuple(
        tuple(replace(piece, evaluated=point, sure=False) if isinstance(piece, Slot) else piece for piece in text)
        for text in value
    )


def without_order(value: Value) -> Value:
    """What is left when it is sorted."""
    return tuple(tuple(piece for piece in text if not _is_order(piece)) for text in value)


def _is_order(piece: Piece) -> bool:
    return isinstance(piece, Slot) and piece.source is not None and piece.source.pace == "order"


def written(text: Iterable[Piece]) -> int:
    """How many characters of it are written out."""
    return sum(len(piece.text) for piece in text if isinstance(piece, Words))


def constant(value: Value) -> str | None:
    """The text, if it is the same in every run."""
    if len(value) != 1 or any(isinstance(piece, Slot) for piece in value[0]):
        return None
    return "".join(piece.text for piece in value[0] if isinstance(piece, Words))


def _rank(text: Text) -> tuple[int, int]:
    sources = sum(isinstance(piece, Slot) and piece.source is not None for piece in text)
    return -sources, -written(text)
