# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""RMSNorm of a row, after adding what a layer gave to the residual stream.

Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.  One program works on one row, so a row's bits do not depend
on its company::

    residual <- residual + x          out <- residual / rms(residual) * weight
"""

import triton
import triton.language as tl
from torch import Tensor

from agentcache_kernels.gpu.launch import Launch, power_of_two
from agentcache_kernels.gpu.tuning import architecture, blocks_for


@triton.jit
def rms_norm_kernel(
    out, residual, x, weight, x_stride, residual_stride, width, eps, HAS_RESIDUAL: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    real = columns < width
    total = tl.load(x + row * x_stride + columns, mask=real, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        at = residual + row * residual_stride + columns
        total += tl.load(at, mask=real, other=0.0).to(tl.float32)
        # What later layers read is rounded; normalising the rounded sum keeps both views of it the same.
        rounded = total.to(residual.dtype.element_ty)
        tl.store(at, rounded, mask=real)
        total = rounded.to(tl.float32)
    inverse = tl.rsqrt(tl.sum(total * total, 0) / width + eps)
    scaled = total * inverse * tl.load(weight + columns, mask=real, other=0.0).to(tl.float32)
    tl.store(out + row * width + columns, scaled.to(out.dtype.element_ty), mask=real)


def rms_norm(
    x: Tensor, weight: Tensor, residual: Tensor | None, out: Tensor, *, eps: float, arch: str | None = None
) -> Launch:
    """Normalise ``x + residual`` (or ``x``) ``[rows, width]`` into ``out``, contiguous; ``residual`` becomes the sum.

    ``out`` may be ``x``.  Rows may lie apart, elements of a row may not.

    Raises:
        ValueError: more than 65,536 columns.
    """
    rows, width = x.shape
    if width > 65536:
        raise ValueError(f"got rows of {width}, expected at most 65536")
    blocks = blocks_for("rms_norm", arch or architecture(x.device), 8 * x.element_size(), width)
    summed = x if residual is None else residual
    arguments = {
        "out": out,
        "residual": summed,
        "x": x,
        "weight": weight,
        "x_stride": x.stride(0),
        "residual_stride": summed.stride(0),
        "width": width,
        "eps": eps,
    }
    constants = {"HAS_RESIDUAL": residual is not None, "BLOCK": power_of_two(width)}
    return Launch(rms_norm_kernel, (rows,), arguments, constants, blocks)


def rms_norm_twin(x: Tensor, weight: Tensor, residual: Tensor | None, out: Tensor, *, eps: float) -> None:
    """The same in plain torch and float64."""
    total = x.double()
    if residual is not None:
        residual.copy_(total + residual.double())
        total = residual.double()
    out.copy_(total * (total.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double())
