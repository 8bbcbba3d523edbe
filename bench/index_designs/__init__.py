"""Four designs of a prefix index behind one interface."""

from __future__ import annotations

from bench.index_designs.compressed_tree import CompressedTree
from bench.index_designs.flat_map import FlatMap
from bench.index_designs.interface import AnyIndex
from bench.index_designs.paged_tree import PagedTree
from bench.index_designs.slots import Slots

DESIGNS: tuple[type[PagedTree] | type[FlatMap] | type[CompressedTree] | type[Slots], ...] = (
    PagedTree,
    FlatMap,
    CompressedTree,
    Slots,
)

__all__ = ["DESIGNS", "AnyIndex"]
