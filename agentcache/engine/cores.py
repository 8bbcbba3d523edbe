"""How many threads a processor is worth."""

from __future__ import annotations

import math
import os
from collections.abc import Set as AbstractSet
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def compute_threads(topology: Path = _TOPOLOGY, quota: Path = _QUOTA, usable: AbstractSet[int] | None = None) -> int:
    """One for each core that this process may use.

    Two hardware threads of a core share its arithmetic units, which products keep busy by themselves; and a container may be
    given less time than the machine has processors: threads beyond either only wait for each other.

    Args:
        usable: numbers of the processors that this process may run on; by default what the system says.
    """
    if usable is None:
        usable = _usable()
    cores = {_siblings(topology, number) for number in usable}
    return max(1, min(len(cores), _granted(quota)))


def _usable() -> AbstractSet[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _siblings(topology: Path, number: int) -> str:
    """What is the same for all hardware threads of a core."""
    try:
        return (topology / f"cpu{number}" / "topology" / "thread_siblings_list").read_text("ascii").strip()
    except OSError:
        return str(number)


def _granted(quota: Path) -> int:
    """Processors' worth of time, rounded up; a great number where there is no limit."""
    try:
        limit, period = quota.read_text("ascii").split()
        return math.ceil(int(limit) / int(period))
    except (OSError, ValueError):  # no such file, or "max": not limited
        return 2**16
