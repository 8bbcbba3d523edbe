"""Vector code, written down operation by operation.

What a compiler makes of a loop over numbers depends on its length and surroundings: it may change the order of a sum, or
round what is left over after whole vectors in another way.  Kernels whose results must not depend on such things write
their inner loops as LLVM instructions on vectors, which say exactly what is added to what; everything around them is
ordinary Python for numba.  Addresses are int64 in bytes, strides and lengths count float32 numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

Value = Any
"""A value of the program that is written, not of this one."""

I64 = ir.IntType(64)
_I32 = ir.IntType(32)
_F32 = ir.FloatType()
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
"""exp(r) = 1 + r + r**2 * (polynomial) for abs(r) <= log(2) / 2: Moshier, Cephes (1984-), ``expf``."""
_LN2 = (0.693359375, -2.12194440e-4)
"""Their sum is log(2); the first has few bits, so that its product with a small whole number is exact."""
_LOWEST, _HIGHEST = -87.0, 88.0


class Vectors:
    """Writes operations on vectors of ``lanes`` float32 numbers into a function."""

    def __init__(self, builder: Any, lanes: int) -> None:
        self.builder = builder
        self.lanes = lanes
        self.type = ir.VectorType(_F32, lanes)
        self._whole = ir.VectorType(_I32, lanes)

    def constant(self, value: float) -> Value:
        return ir.Constant(self.type, [ir.Constant(_F32, value)] * self.lanes)

    def address(self, start: Value, *steps: tuple[Value, int]) -> Value:
        """``start`` plus the sum of all ``count * numbers``; counts are values or whole numbers."""
        b = self.builder
        for count, numbers in steps:
            start = b.add(start, b.mul(index(count), index(4 * numbers)))
        return start

    def load(self, address: Value) -> Value:
        return self.builder.load(self._pointer(address, self.type), align=4)

    def store(self, vector: Value, address: Value) -> None:
        self.builder.store(vector, self._pointer(address, self.type), align=4)

    def load_splat(self, address: Value) -> Value:
        """One number, in every lane."""
        return self.splat(self.builder.load(self._pointer(address, _F32), align=4))

    def splat(self, number: Value) -> Value:
        undefined = ir.Constant(self.type, ir.Undefined)
        one = self.builder.insert_element(undefined, number, ir.Constant(_I32, 0))
        return self.builder.shuffle_vector(one, undefined, ir.Constant(self._whole, [0] * self.lanes))

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """``a * b + c``, rounded once."""
        return self._call("fma", a, b, c)

    def greater(self, a: Value, b: Value) -> Value:
        """The greater of each pair; of a number and NaN, the number."""
        return self._call("maxnum", a, b)

    def exp(self, x: Value) -> Value:
        """To within 2 units in the last place; 0 below -87, no more than exp(88), NaN for NaN."""
        b = self.builder
        inside = self._call("minnum", self.greater(x, self.constant(_LOWEST)), self.constant(_HIGHEST))
        power = self._call("rint", b.fmul(inside, self.constant(math.log2(math.e))))
        rest = self.fma(power, self.constant(-_LN2[0]), inside)
        rest = self.fma(power, self.constant(-_LN2[1]), rest)
        series = self.constant(_EXP[0])
        for coefficient in _EXP[1:]:
            series = self.fma(series, rest, self.constant(coefficient))
        series = b.fadd(self.fma(series, b.fmul(rest, rest), rest), self.constant(1.0))
        exponent = b.add(b.fptosi(power, self._whole), ir.Constant(self._whole, [127] * self.lanes))
        scale = b.bitcast(b.shl(exponent, ir.Constant(self._whole, [23] * self.lanes)), self.type)
        result = b.select(b.fcmp_ordered("<", x, self.constant(_LOWEST)), self.constant(0.0), b.fmul(series, scale))
        return b.select(b.fcmp_unordered("uno", x, x), x, result)

    def total(self, vector: Value) -> Value:
        """The sum of all lanes, halves onto halves."""
        return self._fold(vector, self.builder.fadd)

    def greatest(self, vector: Value) -> Value:
        return self._fold(vector, lambda a, b: self._call("maxnum", a, b, scalar=True))

    def _fold(self, vector: Value, combine: Callable[[Value, Value], Value]) -> Value:
        parts = [self.builder.extract_element(vector, ir.Constant(_I32, lane)) for lane in range(self.lanes)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [combine(a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
        return parts[0]

    def _pointer(self, address: Value, kind: Any) -> Value:
        return self.builder.inttoptr(address, kind.as_pointer())

    def _call(self, name: str, *arguments: Value, scalar: bool = False) -> Value:
        kind = _F32 if scalar else self.type
        full = f"llvm.{name}.{'f32' if scalar else f'v{self.lanes}f32'}"
        module = self.builder.module
        function = module.globals.get(full) or ir.Function(module, ir.FunctionType(kind, [kind] * len(arguments)), full)
        return self.builder.call(function, arguments)

    def loop(
        self, count: Value, carried: Sequence[Value], body: Callable[[Value, list[Value]], Sequence[Value]]
    ) -> list[Value]:
        """Write ``for i in range(count): carried = body(i, carried)``; what is carried at the end."""
        b = self.builder
        before = b.block
        inside = b.append_basic_block("loop")
        after = b.append_basic_block("after")
        b.cbranch(b.icmp_signed(">", count, index(0)), inside, after)
        b.position_at_end(inside)
        number = b.phi(I64)
        number.add_incoming(index(0), before)
        values = [b.phi(value.type) for value in carried]
        for phi, value in zip(values, carried, strict=True):
            phi.add_incoming(value, before)
        updated = list(body(number, list(values)))
        end = b.block
        following = b.add(number, index(1))
        number.add_incoming(following, end)
        for phi, value in zip(values, updated, strict=True):
            phi.add_incoming(value, end)
        b.cbranch(b.icmp_signed("<", following, count), inside, after)
        b.position_at_end(after)
        results = [b.phi(value.type) for value in carried]
        for phi, old, new in zip(results, carried, updated, strict=True):
            phi.add_incoming(old, before)
            phi.add_incoming(new, end)
        return results


def index(value: Value) -> Value:
    return ir.Constant(I64, value) if isinstance(value, int) else value


def emitted(result: Any, arguments: Sequence[Any], write: Callable[..., Value], name: str | None = None) -> Any:
    """A function for compiled code whose body ``write(builder, *arguments)`` writes.

    Args:
        result: numba's type of what it returns; ``types.void``: nothing.
        arguments: numba's types of what it is called with.
        name: makes it a function of its own in the program, for bodies that are too long to be repeated wherever they are
            called; one that returns nothing.
    """
    signature = result(*arguments)

    def code(context: Any, builder: Any, _signature: Any, values: Sequence[Value]) -> Value:
        if name is not None:
            builder.call(_function(builder.module, name, values, write), values)
            return context.get_dummy_value()
        returned = write(builder, *values)
        return context.get_dummy_value() if returned is None else returned

    # numba looks at the number of parameters.
    names = ", ".join(f"a{number}" for number in range(len(arguments)))
    typing: dict[str, Any] = {"signature": signature, "code": code}
    exec(f"def typed(context, {names}): return signature, code", typing)  # made of numbers alone
    return intrinsic(typing["typed"])


def _function(module: Any, name: str, values: Sequence[Value], write: Callable[..., Value]) -> Any:
    if (known := module.globals.get(name)) is not None:
        return known
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [value.type for value in values]), name)
    function.linkage = "linkonce_odr"  # each part of a kernel brings it along, and one stays
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    write(builder, *function.args)
    builder.ret_void()
    return function


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


def for_each_count(b: Any, m: Value, most: int, write: Callable[[int], None]) -> None:
    """Write a piece of code for each of 1 .. ``most``, of which the one for ``m`` is run."""
    done = b.append_basic_block("done")
    cases = b.switch(m, done)
    for count in range(1, most + 1):
        block = b.append_basic_block(f"rows{count}")
        cases.add_case(index(count), block)
        b.position_at_end(block)
        write(count)
        b.branch(done)
    b.position_at_end(done)


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
    return b.extract_element(v.exp(v.splat(x)), ir.Constant(_I32, 0))


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


LANES = 16
"""Of row operations, on every processor: one whose registers are narrower takes several for a vector, with the same
result."""

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
