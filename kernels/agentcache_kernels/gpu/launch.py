"""One launch of a kernel, as a value: the same description is run on a GPU, interpreted, or compiled ahead of time."""

from dataclasses import dataclass
from typing import Any

import triton

from agentcache_kernels.gpu.tuning import Blocks


@dataclass(frozen=True, slots=True)
class Launch:
    """``kernel`` over ``grid`` programs.

    ``arguments`` are tensors and numbers in the kernel's own order; ``constants`` are what it is compiled for.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    constants: dict[str, int]
    blocks: Blocks
    fused: bool = True
    """Whether a product and a sum may be rounded once together."""

    def run(self) -> None:
        """Queue the kernel on the current stream; an empty grid launches nothing."""
        if 0 in self.grid:
            return
        self.kernel[self.grid](
            **self.arguments,
            **self.constants,
            num_warps=self.blocks.warps,
            num_stages=self.blocks.stages,
            enable_fp_fusion=self.fused,
        )


def host_lists(*pointers: str, numbers: tuple[str, ...] = ()) -> Any:
    """``triton.jit`` for a kernel some of whose arguments change from step to step.

    Lists that the host made begin anywhere in a larger transfer, and widths of tables vary: were kernels compiled for each
    alignment and each multiple of 16, steps would wait for the compiler long after the first one.
    """
    return triton.jit(do_not_specialize=numbers, do_not_specialize_on_alignment=pointers)


def power_of_two(number: int) -> int:
    """The smallest power of two that is no less than ``number``."""
    return 1 << max(0, number - 1).bit_length()
