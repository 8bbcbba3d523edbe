"""Vector code for weights that are small whole numbers: turned into float32 in registers, or a piece of them into memory.

Codes of a panel lie in order of inputs, ``2 * lanes`` outputs for each::

    int8:  one byte a weight                                     w = code * scale            a float32 for each output
    int4:  byte i holds outputs i (lower half) and lanes + i     w = code * scale + least    two float16 for 32 inputs of one

Both ways give a weight the same bits, and every product is the chain that ``product_tile`` describes.  So a result has the
bits of the product with the weights that the codes stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from agentcache_kernels.cpu.emit import Value, Vectors, emitted, for_each_count, index
from agentcache_kernels.cpu.emit_products import TileWriter

GROUP = 32
"""Inputs that share a scale in int4."""

_VECTORS = 2
_I8 = ir.IntType(8)
_HALF = ir.HalfType()

Line = Callable[[Value], list[Value]]
"""Gives the weights of one input for the panel's outputs."""


class _Codes:
    """Reads codes of one panel."""

    def __init__(self, v: Vectors, codes: Value) -> None:
        self.v = v
        self._codes = codes
        self._bytes = ir.VectorType(_I8, v.lanes)
        self._whole = ir.VectorType(ir.IntType(32), v.lanes)

    def _load(self, kind: Any, address: Value) -> Value:
        return self.v.builder.load(self.v.builder.inttoptr(address, kind.as_pointer()), align=1)

    def halves(self, address: Value) -> list[Value]:
        """float16 for each of the panel's outputs, as float32."""
        b, lanes = self.v.builder, self.v.lanes
        kind = ir.VectorType(_HALF, lanes)
        starts = (b.add(address, index(2 * lanes * j)) for j in range(_VECTORS))
        return [b.fpext(self._load(kind, start), self.v.type) for start in starts]

    def signed(self, k: Value) -> list[Value]:
        """int8 codes of input ``k``, as float32."""
        b, lanes = self.v.builder, self.v.lanes
        start = b.add(self._codes, b.mul(k, index(_VECTORS * lanes)))
        loaded = (self._load(self._bytes, b.add(start, index(lanes * j))) for j in range(_VECTORS))
        return [b.sitofp(b.sext(codes, self._whole), self.v.type) for codes in loaded]

    def unsigned(self, k: Value) -> list[Value]:
        """int4 codes of input ``k``, as float32."""
        b, lanes = self.v.builder, self.v.lanes
        pairs = self._load(self._bytes, b.add(self._codes, b.mul(k, index(lanes))))
        lower = b.and_(pairs, ir.Constant(self._bytes, [15] * lanes))
        upper = b.lshr(pairs, ir.Constant(self._bytes, [4] * lanes))
        return [b.uitofp(b.zext(half, self._whole), self.v.type) for half in (lower, upper)]


def _int8_lines(v: Vectors, codes: Value, scales: Value) -> Line:
    reader = _Codes(v, codes)
    factors = [v.load(v.address(scales, (j, v.lanes))) for j in range(_VECTORS)]
    return lambda k: [v.builder.fmul(code, s) for code, s in zip(reader.signed(k), factors, strict=True)]


def _int4_lines(v: Vectors, codes: Value, scales: Value, group: Value) -> Line:
    """Of the inputs of one group; its scales and leasts lie one behind the other."""
    reader = _Codes(v, codes)
    start = v.builder.add(scales, v.builder.mul(group, index(2 * 2 * _VECTORS * v.lanes)))
    factors, leasts = reader.halves(start), reader.halves(v.builder.add(start, index(2 * _VECTORS * v.lanes)))
    return lambda k: [v.fma(code, *pair) for code, *pair in zip(reader.unsigned(k), factors, leasts, strict=True)]


def _each_group(
    v: Vectors,
    inputs: Value,
    carried: Sequence[Value],
    lines_of: Callable[[Value], Line],
    step: Callable[[Value, list[Value], list[Value]], Sequence[Value]],
) -> list[Value]:
    """Write a walk along whole groups of inputs; ``step(k, weights, carried)`` for each input."""

    def body(group: Value, outer: list[Value]) -> list[Value]:
        line = lines_of(group)
        first = v.builder.mul(group, index(GROUP))

        def inside(k: Value, values: list[Value]) -> Sequence[Value]:
            number = v.builder.add(first, k)
            return step(number, line(number), values)

        return v.loop(index(GROUP), outer, inside)

    return v.loop(v.builder.sdiv(inputs, index(GROUP)), carried, body)


def int8_tile(rows: int, lanes: int) -> Any:
    """``tile(m, a, lda, codes, scales, c, ldc, inner, more)``: as ``product_tile``, of ``2 * lanes`` columns."""

    def write(b: Any, m: Value, *rest: Value) -> None:
        a, lda, codes, scales, c, ldc, inner, more = rest

        def write_rows(count: int) -> None:
            v = Vectors(b, lanes)
            tile = TileWriter(v, (count, _VECTORS), (a, lda), (c, ldc))
            line = _int8_lines(v, codes, scales)
            tile.store(v.loop(inner, tile.begin(more), lambda k, sums: tile.step(k, line(k), sums)))

        for_each_count(b, m, rows, write_rows)

    return emitted(types.void, [types.int64] * 9, write, f"int8_tile_{rows}_{lanes}")


def int4_tile(rows: int, lanes: int) -> Any:
    """``tile(m, a, lda, codes, scales, c, ldc, inner, more)``; ``inner`` is a multiple of 32."""

    def write(b: Any, m: Value, *rest: Value) -> None:
        a, lda, codes, scales, c, ldc, inner, more = rest

        def write_rows(count: int) -> None:
            v = Vectors(b, lanes)
            tile = TileWriter(v, (count, _VECTORS), (a, lda), (c, ldc))
            sums = _each_group(v, inner, tile.begin(more), lambda g: _int4_lines(v, codes, scales, g), tile.step)
            tile.store(sums)

        for_each_count(b, m, rows, write_rows)

    return emitted(types.void, [types.int64] * 9, write, f"int4_tile_{rows}_{lanes}")


def int8_expand(lanes: int) -> Any:
    """``expand(codes, scales, out, inputs)``: float32 ``[inputs, 2 * lanes]``."""

    def write(b: Any, codes: Value, scales: Value, out: Value, inputs: Value) -> None:
        v = Vectors(b, lanes)
        line = _int8_lines(v, codes, scales)

        def body(k: Value, _: list[Value]) -> list[Value]:
            _store_line(v, out, k, line(k))
            return []

        v.loop(inputs, [], body)

    return emitted(types.void, [types.int64] * 4, write, f"int8_expand_{lanes}")


def int4_expand(lanes: int) -> Any:
    """As :func:`int8_expand`; ``inputs`` is a multiple of 32."""

    def write(b: Any, codes: Value, scales: Value, out: Value, inputs: Value) -> None:
        v = Vectors(b, lanes)

        def step(k: Value, weights: list[Value], _: list[Value]) -> list[Value]:
            _store_line(v, out, k, weights)
            return []

        _each_group(v, inputs, [], lambda group: _int4_lines(v, codes, scales, group), step)

    return emitted(types.void, [types.int64] * 4, write, f"int4_expand_{lanes}")


def _store_line(v: Vectors, out: Value, k: Value, weights: Sequence[Value]) -> None:
    for j, vector in enumerate(weights):
        v.store(vector, v.address(out, (k, _VECTORS * v.lanes), (j, v.lanes)))
