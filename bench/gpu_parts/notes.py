"""What a part of the check found, written line by line so that nothing is lost when it is stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import triton.testing


@dataclass(frozen=True)
class Finding:
    """One figure.  ``goal`` is a bound that ``value`` keeps (``ok``) or not; figures without a goal are for reading."""

    part: str
    name: str
    value: float
    unit: str
    goal: str = ""
    ok: bool = True


class Notes:
    """Where a part writes what it finds.

    Args:
        interpret: tiny shapes on the CPU, under Triton's interpreter: nothing is measured in earnest, and no goal of speed
            is held.
    """

    def __init__(self, part: str, file: Path, interpret: bool) -> None:
        self.part = part
        self.interpret = interpret
        self.device = torch.device("cpu" if interpret else "cuda")
        self._file = file

    def figure(self, name: str, value: float, unit: str) -> None:
        """A figure without a goal."""
        self._write(Finding(self.part, name, value, unit))

    def at_most(self, name: str, value: float, bound: float, unit: str) -> None:
        """An error: it holds under the interpreter as well."""
        self._write(Finding(self.part, name, value, unit, f"<= {bound:g}", value <= bound))

    def speed(self, name: str, value: float, bound: float, unit: str) -> None:
        """A goal of speed."""
        if self.interpret:
            self.figure(name, value, unit)
        else:
            self._write(Finding(self.part, name, value, unit, f">= {bound:g}", value >= bound))

    def seconds(self, work: Callable[[], object]) -> float:
        """How long ``work`` takes on the device: the median of runs from a CUDA graph, without the host's share."""
        if self.interpret:
            began = time.perf_counter()
            work()
            return time.perf_counter() - began
        return float(triton.testing.do_bench_cudagraph(work, rep=50, return_mode="median")) / 1e3

    def _write(self, finding: Finding) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(finding)) + "\n")


def relative_error(ours: torch.Tensor, expected: torch.Tensor) -> float:
    """Length of the difference over the length of what is expected; NaN counts as infinite."""
    difference = (ours.double() - expected.double()).norm() / expected.double().norm().clamp_min(1e-30)
    return float(difference.nan_to_num(nan=float("inf")))
