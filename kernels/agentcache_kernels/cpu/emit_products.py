"""Product tiles, as vector code: a part of a product whose results stay in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba.core import types

from agentcache_kernels.cpu.emit import Value, Vectors, emitted, for_each_count, index


def product_tile(rows: int, vectors: int, lanes: int) -> Any:
    """``tile(m, a, lda, b, ldb, c, ldc, inner, more)``: C = A @ B for ``m <= rows`` rows and ``vectors * lanes`` columns.

    ::

                 B  [inner, columns]                 all of C stays in registers while ``inner`` is walked along:
        A [m, inner]   C [m, columns]                c[i, j] = fma(a[i, k], b[k, j], c[i, j]) for k = 0, 1, ...

    Every number is one chain of fused multiply-adds, whichever tile it is part of.  With ``more`` other than 0 the
    chains go on from what C holds, so cutting ``inner`` into pieces changes nothing.
    """

    def write(b: Any, m: Value, *rest: Value) -> None:
        for_each_count(b, m, rows, lambda count: _write_tile(Vectors(b, lanes), (count, vectors), rest))

    return emitted(types.void, [types.int64] * 9, write, f"product_tile_{rows}_{vectors}_{lanes}")


def _write_tile(v: Vectors, size: tuple[int, int], arguments: Sequence[Value]) -> None:
    a, lda, b, ldb, c, ldc, inner, more = arguments

    def line(k: Value) -> list[Value]:
        start = v.address(b, (v.builder.mul(k, ldb), 1))
        return [v.load(v.address(start, (column, v.lanes))) for column in range(size[1])]

    tile = TileWriter(v, size, (a, lda), (c, ldc))
    tile.store(v.loop(inner, tile.begin(more), lambda k, sums: tile.step(k, line(k), sums)))


class TileWriter:
    """Writes the parts of a product tile: its results in registers, and what one line of the right side adds to them."""

    def __init__(
        self, v: Vectors, size: tuple[int, int], left: tuple[Value, Value], result: tuple[Value, Value]
    ) -> None:
        self.v = v
        self.rows, self.vectors = size
        b = v.builder
        self._starts = [v.address(left[0], (b.mul(left[1], index(row)), 1)) for row in range(self.rows)]
        self._places = [
            v.address(result[0], (b.mul(result[1], index(row)), 1), (column, v.lanes))
            for row in range(self.rows)
            for column in range(self.vectors)
        ]

    def begin(self, more: Value) -> list[Value]:
        """Zeros, or what the result holds."""
        b = self.v.builder
        with b.if_else(b.icmp_signed("!=", more, index(0))) as (then, otherwise):
            with then:
                held = [self.v.load(place) for place in self._places]
                then_block = b.block
            with otherwise:
                other_block = b.block
        sums: list[Value] = []
        for value in held:
            phi = b.phi(self.v.type)
            phi.add_incoming(value, then_block)
            phi.add_incoming(self.v.constant(0.0), other_block)
            sums.append(phi)
        return sums

    def step(self, k: Value, line: Sequence[Value], sums: Sequence[Value]) -> list[Value]:
        """Add number ``k`` of each row, times ``line``."""
        updated = []
        for row, start in enumerate(self._starts):
            factor = self.v.load_splat(self.v.address(start, (k, 1)))
            first = row * self.vectors
            updated += [self.v.fma(factor, line[j], sums[first + j]) for j in range(self.vectors)]
        return updated

    def store(self, sums: Sequence[Value]) -> None:
        for value, place in zip(sums, self._places, strict=True):
            self.v.store(value, place)
