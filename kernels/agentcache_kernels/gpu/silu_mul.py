# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"
"""``silu(gate) * up`` of a fused projection (Shazeer, "GLU Variants Improve Transformer", 2020)::

row:   | gate: width columns | up: width columns |   ->   | out: width columns |
"""

import triton
import triton.language as tl
from torch import Tensor

from agentcache_kernels.gpu.launch import Launch
from agentcache_kernels.gpu.tuning import architecture, blocks_for


@triton.jit
def silu_mul_kernel(out, gate_up, stride, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = columns < width
    gate = tl.load(gate_up + row * stride + columns, mask=real, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * stride + width + columns, mask=real, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * width + columns, result.to(out.dtype.element_ty), mask=real)


def silu_mul(gate_up: Tensor, out: Tensor, arch: str | None = None) -> Launch:
    """``gate_up`` ``[rows, 2 * width]``, rows may lie apart; ``out`` ``[rows, width]``, contiguous.

    Computed in float32 and rounded once.
    """
    rows, width = out.shape
    if gate_up.shape != (rows, 2 * width):
        raise ValueError(f"got {list(gate_up.shape)}, expected {[rows, 2 * width]}")
    blocks = blocks_for("silu_mul", arch or architecture(out.device), 8 * out.element_size(), width)
    arguments = {"out": out, "gate_up": gate_up, "stride": gate_up.stride(0), "width": width}
    grid = (rows, -(-width // blocks.columns))
    return Launch(silu_mul_kernel, grid, arguments, {"BLOCK": blocks.columns}, blocks)


def silu_mul_twin(gate_up: Tensor, out: Tensor) -> None:
    """The same in plain torch and float64."""
    gate, up = gate_up.double().chunk(2, -1)
    out.copy_(gate * gate.sigmoid() * up)
