"""Work beside the computation, and who waits for whom.

::

    main stream:   step n ......... | step n+1: may write the page ...
    side stream:        waits ─► copy a page out ─► main waits
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch


class Side(Protocol):
    """Where copies between device and host run."""

    def submit(self, work: Callable[[], None]) -> None:
        """Run ``work`` some time after everything that the main stream was given before, in order of submission."""
        ...

    def main_waits(self) -> None:
        """What the main stream is given from here on runs after everything submitted so far."""
        ...

    def waiter(self) -> Callable[[], None]:
        """A function that returns once everything submitted so far is done; any thread may call it."""
        ...


class AtOnce:
    """Without a device there is nothing beside the computation: work is done when it is submitted."""

    def submit(self, work: Callable[[], None]) -> None:
        work()

    def main_waits(self) -> None:
        pass

    def waiter(self) -> Callable[[], None]:
        return _nothing


class SideStream:
    """A CUDA stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def submit(self, work: Callable[[], None]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            work()

    def main_waits(self) -> None:
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def waiter(self) -> Callable[[], None]:
        event = torch.cuda.Event()
        event.record(self._stream)
        wait: Callable[[], None] = event.synchronize
        return wait


def side_of(device: torch.device) -> Side:
    return SideStream(device) if device.type == "cuda" else AtOnce()


def _nothing() -> None:
    pass
