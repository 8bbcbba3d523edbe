"""Products with weights that were packed for them.

::

    weight [outputs, inputs]         packed: panels of as many outputs as a tile is wide, each in order of inputs

         inputs                      panel 0: | w[0..31, 0] | w[0..31, 1] | ... | w[0..31, inputs-1] |
       +---------+                   panel 1: | w[32..63, 0] | ...
    32 | panel 0 |
       +---------+                   so that few rows read it once from beginning to end, at the speed of memory
    32 | panel 1 |

Weights are float32, or small whole numbers with scales, which become float32 on the way.  A row's result is a chain of fused
multiply-adds for each output, whatever the number of rows and threads: rows do not depend on each other, and no row is
padded.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from torch import Tensor
from torch.nn.functional import pad

from agentcache_kernels.cpu.compiling import kernel, part, threads
from agentcache_kernels.cpu.emit_codes import GROUP, int4_expand, int4_tile, int8_expand, int8_tile
from agentcache_kernels.cpu.emit_products import product_tile
from agentcache_kernels.cpu.emit_rows import copy, take
from agentcache_kernels.cpu.target import target

_LANES = target().lanes
_ROWS = target().weights[0]
PANEL = 2 * _LANES
"""Outputs of a panel."""
_INNER = 512
"""So many inputs at a time: a piece of a panel and the rows' numbers for it stay in the caches near the core."""
_FEW_ROWS = min(8, _ROWS)
"""Up to so many rows codes become numbers in registers only; for more they are written down once, and read for all."""

_FLOAT, _INT8, _INT4 = 0, 1, 2

_tile = product_tile(_ROWS, 2, _LANES)
_tile8 = int8_tile(_FEW_ROWS, _LANES)
_tile4 = int4_tile(_FEW_ROWS, _LANES)
_expand8 = int8_expand(_LANES)
_expand4 = int4_expand(_LANES)


class _Packed:
    """Weights ``[outputs, inputs]`` in ``panels``, of which ``scales`` may say what they stand for."""

    _kind: int

    def __init__(self, shape: torch.Size, panels: Tensor, scales: Tensor) -> None:
        self.outputs, self.inputs = shape
        self.panels = panels
        self.scales = scales

    @property
    def nbytes(self) -> int:
        return int(self.panels.nbytes + self.scales.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        """``x @ weight.T``: float32 ``[rows, outputs]`` from float32 ``[rows, inputs]``.

        Raises:
            ValueError: ``x`` has another type or another number of inputs.
        """
        if x.dtype is not torch.float32 or x.shape[1:] != (self.inputs,):
            raise ValueError(f"got {x.dtype} {list(x.shape)}, expected float32 [rows, {self.inputs}]")
        x = x.contiguous()
        rows = x.shape[0]
        y = x.new_empty(rows, self.outputs)
        if rows:
            _product(
                self._kind, x.data_ptr(), self.panels.data_ptr(), self.scales.data_ptr(), y.data_ptr(), np.zeros(1, np.int64),
                rows, self.inputs, self.outputs, threads(),
            )  # fmt: skip
        return y


class PackedWeight(_Packed):
    """Float32 weights: ``panels`` is ``[ceil(outputs / PANEL), inputs, PANEL]``."""

    _kind = _FLOAT

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight.shape, _in_panels(weight), torch.empty(0))

    def rows(self, numbers: Tensor) -> Tensor:
        """``weight[numbers]`` ``[len(numbers), inputs]``."""
        return self.panels[numbers // PANEL, :, numbers % PANEL]

    def unpacked(self) -> Tensor:
        """A copy of the weights as they were given."""
        return self.panels.transpose(1, 2).reshape(-1, self.inputs)[: self.outputs]


class PackedInt8(_Packed):
    """``codes * scales``: int8 ``[outputs, inputs]`` with float32 ``[outputs]``."""

    _kind = _INT8

    def __init__(self, codes: Tensor, scales: Tensor) -> None:
        super().__init__(codes.shape, _in_panels(codes), _in_panels(scales[:, None]))


class PackedInt4(_Packed):
    """``codes * scales + leasts``: uint8 0 .. 15 ``[outputs, inputs]`` with float16 ``[outputs, inputs / 32]`` twice."""

    _kind = _INT4

    def __init__(self, codes: Tensor, scales: Tensor, leasts: Tensor) -> None:
        panels = _in_panels(codes)
        pairs = torch.stack((_in_panels(scales), _in_panels(leasts)), 2)  # [panels, groups, 2, PANEL]
        super().__init__(codes.shape, panels[..., :_LANES] | panels[..., _LANES:] << 4, pairs)


def _in_panels(matrix: Tensor) -> Tensor:
    """``[outputs, inputs]`` as ``[ceil(outputs / PANEL), inputs, PANEL]``, filled up with zeros."""
    outputs, inputs = matrix.shape
    panels = matrix.new_empty(-(-outputs // PANEL), inputs, PANEL)
    whole = outputs // PANEL
    panels[:whole] = matrix[: whole * PANEL].view(whole, PANEL, inputs).transpose(1, 2)
    if outputs % PANEL:
        panels[whole] = pad(matrix[whole * PANEL :].t(), (0, PANEL - outputs % PANEL))
    return panels


@part
def even_share(rows: int, most: int) -> int:
    """Rows of a tile, where as few tiles as are needed share them evenly: a last one of few rows would read its right side for
    little."""
    tiles = (rows + most - 1) // most
    return (rows + tiles - 1) // tiles


@part
def _float_piece(x: int, inputs: int, piece: int, y: int, ldy: int, rows: int, count: int, more: int) -> None:
    """All rows, for ``count`` inputs of a panel."""
    size = even_share(rows, _ROWS)
    for row in range(0, rows, size):
        _tile(
            min(size, rows - row), x + 4 * row * inputs, inputs, piece, PANEL, y + 4 * row * ldy, ldy, count, more
        )  # fmt: skip


@part
def _float_panel(x: int, panel: int, y: int, ldy: int, rows: int, inputs: int) -> None:
    for inner in range(0, inputs, _INNER):
        count = min(_INNER, inputs - inner)
        _float_piece(x + 4 * inner, inputs, panel + 4 * inner * PANEL, y, ldy, rows, count, inner)


@part
def _code_panel(kind: int, x: int, panel: int, scales: int, y: int, ldy: int, rows: int, inputs: int) -> None:
    if rows <= _FEW_ROWS:
        if kind == _INT8:
            _tile8(rows, x, inputs, panel, scales, y, ldy, inputs, 0)
        else:
            _tile4(rows, x, inputs, panel, scales, y, ldy, inputs, 0)
        return
    piece = np.empty(_INNER * PANEL, np.float32)
    for inner in range(0, inputs, _INNER):
        count = min(_INNER, inputs - inner)
        if kind == _INT8:
            _expand8(panel + inner * PANEL, scales, piece.ctypes.data, count)
        else:
            _expand4(panel + inner * _LANES, scales + 4 * PANEL * (inner // GROUP), piece.ctypes.data, count)
        _float_piece(x + 4 * inner, inputs, piece.ctypes.data, y, ldy, rows, count, inner)


@part
def _panel(kind: int, x: int, panels: int, scales: int, number: int, y: int, ldy: int, rows: int, inputs: int) -> None:
    """All rows of one panel, its inputs piece by piece."""
    if kind == _FLOAT:
        _float_panel(x, panels + 4 * number * inputs * PANEL, y, ldy, rows, inputs)
    elif kind == _INT8:
        _code_panel(
            kind, x, panels + number * inputs * PANEL, scales + 4 * number * PANEL, y, ldy, rows, inputs
        )  # fmt: skip
    else:
        _code_panel(
            kind, x, panels + number * inputs * _LANES, scales + 4 * number * (inputs // GROUP) * PANEL,
            y, ldy, rows, inputs,
        )  # fmt: skip


@kernel
def _product(
    kind: int,
    x: int,
    panels: int,
    scales: int,
    y: int,
    counter: np.ndarray,
    rows: int,
    inputs: int,
    outputs: int,
    workers: int,
) -> None:
    count = (outputs + PANEL - 1) // PANEL
    for _ in prange(workers):
        panel = take(counter.ctypes.data)
        while panel < count:
            width = min(PANEL, outputs - panel * PANEL)
            if width == PANEL:
                _panel(kind, x, panels, scales, panel, y + 4 * panel * PANEL, outputs, rows, inputs)
            else:
                whole = np.empty((rows, PANEL), np.float32)
                _panel(kind, x, panels, scales, panel, whole.ctypes.data, PANEL, rows, inputs)
                for row in range(rows):
                    copy(whole.ctypes.data + 4 * row * PANEL, y + 4 * (row * outputs + panel * PANEL), width)
            panel = take(counter.ctypes.data)
