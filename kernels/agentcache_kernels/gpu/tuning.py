"""Block sizes, warps and pipeline stages of every kernel, read from ``tuning.json``.

Nothing is tuned while serving: which blocks a kernel uses decides the order of its sums, and with it the last bits of its
results.  The file is the only place that says so, for each architecture::

    kernel -> architecture -> [entry, ...]       the first entry whose ``bits`` is the element's and whose
                                                 ``up_to`` is no less than the size asked for
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import torch

_MAJORS = {9: "sm90", 10: "sm100"}


@dataclass(frozen=True, slots=True)
class Blocks:
    """How one kernel cuts its work.

    ``rows`` x ``columns`` elements make a tile (for attention: query lines x keys), which ``warps`` warps work on, with
    ``stages`` loads in flight.
    """

    rows: int
    columns: int
    warps: int
    stages: int


def architecture(device: torch.device) -> str:
    """The name under which ``tuning.json`` knows a device.

    Chips that are not in the file use the entries of the nearest one that has no more shared memory.  Tensors on a CPU
    are for Triton's interpreter.
    """
    if device.type == "cpu":
        return "interpreter"
    if torch.version.hip:
        return "gfx942"
    major, _ = torch.cuda.get_device_capability(device)
    return _MAJORS.get(major, "sm80")


def blocks_for(kernel: str, arch: str, bits: int, size: int) -> Blocks:
    """The blocks of ``kernel`` for elements of ``bits`` and a head or row of ``size`` elements.

    Raises:
        ValueError: the file has no such entry.
    """
    for entry in _table().get(kernel, {}).get(arch, ()):
        if entry.get("bits", bits) == bits and size <= entry["up_to"]:
            return Blocks(entry.get("rows", 1), entry["columns"], entry["warps"], entry.get("stages", 1))
    raise ValueError(f"got kernel '{kernel}' on '{arch}' for {bits} bits and size {size}, expected one of tuning.json")


@cache
def _table() -> dict[str, dict[str, list[dict[str, Any]]]]:
    table: dict[str, dict[str, list[dict[str, Any]]]] = json.loads(
        files(__package__).joinpath("tuning.json").read_text()
    )
    return table
