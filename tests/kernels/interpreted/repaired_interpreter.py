"""Triton's interpreter made fit for these kernels.

As it is (3.7) it multiplies the bit patterns of bfloat16 as whole numbers, cuts bits off where a GPU rounds to the nearest, and
replaces the language's functions anew in every call of a device function, which takes longer than the arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.language import core  # noqa: F401 (see repair)
from triton.runtime import interpreter


def repair() -> None:
    """Replace the three places, for the rest of the process."""
    builder: Any = interpreter.InterpreterBuilder
    builder.create_dot = _dot
    builder.cast_impl = _casting(builder.cast_impl)
    # Any function that sees both modules will do: what is replaced are the modules' functions.
    interpreter._patch_lang(repair)
    interpreter._patch_lang = lambda fn: interpreter._LangPatchScope()


def to_float(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bfloat(numbers: np.ndarray) -> np.ndarray:
    """Bit patterns of the nearest bfloat16 numbers, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(numbers), 0x7FC0, rounded).astype(np.uint16)


def _floats(handle: Any) -> np.ndarray:
    return to_float(handle.data) if handle.dtype.scalar == tl.bfloat16 else handle.data.astype(np.float32)


def _dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
    return interpreter.TensorHandle(np.matmul(_floats(a), _floats(b)) + d.data, d.dtype.scalar)


def _casting(other_types: Any) -> Any:
    def cast(self: Any, src: Any, dst_type: Any) -> Any:
        before, after = src.dtype.scalar, dst_type.scalar
        if before == tl.bfloat16 and after == tl.float32:
            return interpreter.TensorHandle(to_float(src.data), after)
        if before == tl.float32 and after == tl.bfloat16:
            return interpreter.TensorHandle(to_bfloat(src.data), after)
        return other_types(self, src, dst_type)

    return cast
