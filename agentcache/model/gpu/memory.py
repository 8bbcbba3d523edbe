"""How many pages a GPU has room for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from agentcache.errors import SettingsError

_SPARED = 0.05
"""Share of all memory that stays free: graphs, the libraries' workspaces, and what an allocator loses between its blocks."""


class DeviceMemory(NamedTuple):
    """Bytes."""

    free: int
    total: int


def pages_that_fit(memory: DeviceMemory, step_bytes: int, page_bytes: int) -> int:
    """Pages of ``page_bytes`` beside what a step of the largest kind takes.

    Raises:
        SettingsError: there is no room for a page.
    """
    room = memory.free - step_bytes - int(memory.total * _SPARED)
    if room < page_bytes:
        raise SettingsError(
            f"the GPU has {memory.free / 2**30:.2f} GiB free beside the model, and one step takes "
            f"{step_bytes / 2**30:.2f} GiB: no page of {page_bytes} bytes fits; lower --prefill-chunk or --max-running"
        )
    return room // page_bytes


def memory_of(device: torch.device) -> DeviceMemory:
    """What the GPU has now, after giving back what torch keeps for later."""
    torch.cuda.empty_cache()
    return DeviceMemory(*torch.cuda.mem_get_info(device))


def bytes_of(work: Callable[[], None], device: torch.device) -> int:
    """The most memory that ``work`` held at once, beyond what was held before."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device)) - int(before)
