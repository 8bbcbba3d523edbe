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
