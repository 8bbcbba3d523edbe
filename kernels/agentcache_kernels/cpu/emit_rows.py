"""Row operations, as vector code: a walk along one row in vectors of sixteen, then number by number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from agentcache_kernels.cpu.emit import I64, Value, Vectors, emitted, index

LANES = 16
"""On every processor: one whose registers are narrower takes several for a vector, with the same result."""


def _write_greatest(b: Any, address: Value, vectors: Value) -> Value:
    v = Vectors(b, LANES)
    lowest = v.constant(-math.inf)
    (found,) = v.loop(vectors, [lowest], lambda k, best: [v.greater(best[0], v.load(v.address(address, (k, LANES))))])
    return v.greatest(found)


def _write_exps(b: Any, address: Value, vectors: Value, greatest: Value) -> Value:
    v = Vectors(b, LANES)
    shift = v.splat(greatest)

    def step(k: Value, sums: list[Value]) -> list[Value]:
        place = v.address(address, (k, LANES))
        weights = v.exp(b.fsub(v.load(place), shift))
        v.store(weights, place)
        return [b.fadd(sums[0], weights)]

    (sums,) = v.loop(vectors, [v.constant(0.0)], step)
    return v.total(sums)


def _write_exp(b: Any, x: Value) -> Value:
    v = Vectors(b, 1)
    return b.extract_element(v.exp(v.splat(x)), ir.Constant(ir.IntType(32), 0))


def _squares(v: Vectors, address: Value, count: Value) -> Value:
    def step(k: Value, sums: list[Value]) -> list[Value]:
        x = v.load(v.address(address, (k, v.lanes)))
        return [v.fma(x, x, sums[0])]

    return v.total(v.loop(count, [v.constant(0.0)], step)[0])


def _write_squares(b: Any, address: Value, length: Value) -> Value:
    wide, narrow = Vectors(b, LANES), Vectors(b, 1)
    whole = b.sdiv(length, index(LANES))
    rest = wide.address(address, (whole, LANES))
    first = _squares(wide, address, whole)
    return b.fadd(first, _squares(narrow, rest, b.srem(length, index(LANES))))


Step = Callable[[Vectors, Value], None]
"""Writes what is done at number ``k`` of vectors."""


def _along(b: Any, length: Value, step_of: Callable[[Vectors, Value], Step]) -> None:
    """Write a walk along ``length`` numbers in vectors, then one by one.

    ``step_of(v, start)`` gives the step for vectors ``v`` that are counted from number ``start``.
    """
    wide, narrow = Vectors(b, LANES), Vectors(b, 1)
    whole = b.sdiv(length, index(LANES))

    def walk(v: Vectors, count: Value, start: Value) -> None:
        step = step_of(v, start)

        def body(k: Value, _: list[Value]) -> list[Value]:
            step(v, k)
            return []

        v.loop(count, [], body)

    walk(wide, whole, index(0))
    walk(narrow, b.srem(length, index(LANES)), b.mul(whole, index(LANES)))


def _elementwise(write: Callable[..., Value], inputs: int) -> Callable[..., None]:
    """``f(x0, x1, ..., out, length)``: ``out[i] = write(v, x0[i], x1[i], ...)``."""

    def along(b: Any, *arguments: Value) -> None:
        addresses, out, length = arguments[:inputs], arguments[inputs], arguments[inputs + 1]

        def step_of(_: Vectors, start: Value) -> Step:
            def step(v: Vectors, k: Value) -> None:
                loaded = [v.load(v.address(x, (start, 1), (k, v.lanes))) for x in addresses]
                v.store(write(v, *loaded), v.address(out, (start, 1), (k, v.lanes)))

            return step

        _along(b, length, step_of)

    return along


def _gated(v: Vectors, gate: Value, up: Value) -> Value:
    below = v.builder.fadd(v.exp(v.builder.fneg(gate)), v.constant(1.0))
    return v.builder.fmul(v.builder.fdiv(gate, below), up)


def _write_scaled(b: Any, x: Value, weight: Value, out: Value, length: Value, scale: Value) -> None:
    def write(v: Vectors, number: Value, factor: Value) -> Value:
        return b.fmul(b.fmul(number, v.splat(scale)), factor)

    _elementwise(write, 2)(b, x, weight, out, length)


def _write_times(b: Any, x: Value, out: Value, length: Value, factor: Value) -> None:
    _elementwise(lambda v, number: b.fmul(number, v.splat(factor)), 1)(b, x, out, length)


def _write_add(b: Any, x: Value, y: Value, length: Value) -> None:
    _elementwise(lambda _, one, other: b.fadd(one, other), 2)(b, x, y, x, length)


def _write_copy(b: Any, source: Value, target: Value, length: Value) -> None:
    _elementwise(lambda _, x: x, 1)(b, source, target, length)


def _write_rotate(b: Any, x: Value, cos: Value, sin: Value, out: Value, half: Value) -> None:
    def step_of(_: Vectors, start: Value) -> Step:
        def step(v: Vectors, k: Value) -> None:
            def place(address: Value, beyond: Value) -> Value:
                return v.address(address, (start, 1), (k, v.lanes), (beyond, 1))

            first, second = v.load(place(x, 0)), v.load(place(x, half))
            c, s = v.load(place(cos, 0)), v.load(place(sin, 0))
            # Rounded one by one, as the torch twin does.
            v.store(b.fsub(b.fmul(first, c), b.fmul(second, s)), place(out, 0))
            v.store(b.fadd(b.fmul(second, c), b.fmul(first, s)), place(out, half))

        return step

    _along(b, half, step_of)


def _write_strided(b: Any, source: Value, target: Value, length: Value, stride: Value) -> None:
    v = Vectors(b, 1)

    def body(k: Value, _: list[Value]) -> list[Value]:
        v.store(v.load(v.address(source, (k, 1))), v.address(target, (b.mul(k, stride), 1)))
        return []

    v.loop(length, [], body)


def _write_take(b: Any, counter: Value) -> Value:
    return b.atomic_rmw("add", b.inttoptr(counter, I64.as_pointer()), index(1), "monotonic")


_A, _F = types.int64, types.float32

greatest = emitted(_F, [_A, _A], _write_greatest)
"""``greatest(row, vectors)``: the greatest of ``vectors * LANES`` numbers; NaNs are passed over."""

exps = emitted(_F, [_A, _A, _F], _write_exps)
"""``exps(row, vectors, shift)``: each x becomes exp(x - shift); returns their sum, the same order of adding every time."""

exp = emitted(_F, [_F], _write_exp)

squares = emitted(_F, [_A, _A], _write_squares)
"""``squares(row, length)``: the sum of squares."""

scaled = emitted(types.void, [_A, _A, _A, _A, _F], _write_scaled)
"""``scaled(x, weight, out, length, scale)``: ``out = x * scale * weight``."""

times = emitted(types.void, [_A, _A, _A, _F], _write_times)
"""``times(x, out, length, factor)``: ``out = x * factor``."""

silu_mul = emitted(types.void, [_A, _A, _A, _A], _elementwise(_gated, 2))
"""``silu_mul(gate, up, out, length)``: ``out = gate / (1 + exp(-gate)) * up``."""

add = emitted(types.void, [_A, _A, _A], _write_add)
"""``add(x, y, length)``: ``x += y``."""

copy = emitted(types.void, [_A, _A, _A], _write_copy)
"""``copy(source, target, length)``."""

rotate = emitted(types.void, [_A, _A, _A, _A, _A], _write_rotate)
"""``rotate(x, cos, sin, out, half)``: the pairs (i, i + half) of ``x`` ``[2 * half]``, turned by their angles."""

store_strided = emitted(types.void, [_A, _A, _A, _A], _write_strided)
"""``store_strided(source, target, length, stride)``: ``target[i * stride] = source[i]``."""

take = emitted(_A, [_A], _write_take)
"""``take(counter)``: what the int64 there was, which is now one more; safe between threads."""
