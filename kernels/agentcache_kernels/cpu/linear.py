"""Products with weights that were packed for them.

::

    weight [outputs, inputs]         packed: panels of as many outputs as a tile is wide, each in order of inputs

         inputs                      panel 0: | w[0..31, 0] | w[0..31, 1] | ... | w[0..31, inputs-1] |
       +---------+                   panel 1: | w[32..63, 0] | ...
    32 | panel 0 |
       +---------+                   so that few rows read it once from beginning to end, at the speed of memory
    32 | panel 1 |

A row's result is a chain of fused multiply-adds for each output, whatever the number of rows and threads: rows do not
depend on each other, and no row is padded.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from torch import Tensor

from agentcache_kernels.cpu.compiling import kernel, part, threads
from agentcache_kernels.cpu.emit import copy, product_tile, take
from agentcache_kernels.cpu.target import target

_ROWS = target().weights[0]
PANEL = target().weights[1] * target().lanes
"""Outputs of a panel."""
_INNER = 512
"""So many inputs at a time: a piece of a panel and the rows' numbers for it stay in the caches near the core."""

_tile = product_tile(*target().weights, target().lanes)


class PackedWeight:
    """Float32 weights ``[outputs, inputs]`` in panels: ``panels`` is ``[ceil(outputs / PANEL), inputs, PANEL]``."""

    def __init__(self, weight: Tensor) -> None:
        self.outputs, self.inputs = weight.shape
        count = -(-self.outputs // PANEL)
        self.panels = torch.empty(count, self.inputs, PANEL)
        whole = self.outputs // PANEL
        self.panels[:whole] = weight[: whole * PANEL].view(whole, PANEL, self.inputs).transpose(1, 2)
        if whole < count:
            self.panels[whole] = 0
            self.panels[whole, :, : self.outputs - whole * PANEL] = weight[whole * PANEL :].t()

    def rows(self, numbers: Tensor) -> Tensor:
        """``weight[numbers]`` ``[len(numbers), inputs]``."""
        return self.panels[numbers // PANEL, :, numbers % PANEL]

    def unpacked(self) -> Tensor:
        """A copy of the weights as they were given."""
        return self.panels.transpose(1, 2).reshape(-1, self.inputs)[: self.outputs]

    def __call__(self, x: Tensor) -> Tensor:
        """``x @ weight.T``: float32 ``[rows, outputs]`` from float32 ``[rows, inputs]``."""
        x = x.contiguous()
        rows = x.shape[0]
        y = torch.empty(rows, self.outputs)
        if rows:
            counter = np.zeros(1, np.int64)
            _product(
                x.data_ptr(), self.panels.data_ptr(), y.data_ptr(), counter.ctypes.data,
                rows, self.inputs, self.outputs, threads(),
            )  # fmt: skip
        return y


@part
def _panel(x: int, panel: int, y: int, ldy: int, rows: int, inputs: int) -> None:
    """All rows of one panel, its inputs piece by piece."""
    groups = (rows + _ROWS - 1) // _ROWS
    size = (rows + groups - 1) // groups  # even groups: a last one of few rows would read the panel for little
    for inner in range(0, inputs, _INNER):
        count = min(_INNER, inputs - inner)
        for row in range(0, rows, size):
            _tile(
                min(size, rows - row), x + 4 * (row * inputs + inner), inputs, panel + 4 * inner * PANEL, PANEL,
                y + 4 * row * ldy, ldy, count, inner,
            )  # fmt: skip


@kernel
def _product(x: int, panels: int, y: int, counter: int, rows: int, inputs: int, outputs: int, workers: int) -> None:
    count = (outputs + PANEL - 1) // PANEL
    for _ in prange(workers):
        panel = take(counter)
        while panel < count:
            start = panels + 4 * panel * inputs * PANEL
            width = min(PANEL, outputs - panel * PANEL)
            if width == PANEL:
                _panel(x, start, y + 4 * panel * PANEL, outputs, rows, inputs)
            else:
                whole = np.empty((rows, PANEL), np.float32)
                _panel(x, start, whole.ctypes.data, PANEL, rows, inputs)
                for row in range(rows):
                    copy(whole.ctypes.data + 4 * row * PANEL, y + 4 * (row * outputs + panel * PANEL), width)
            panel = take(counter)
