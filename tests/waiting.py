"""What becomes true in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(holds: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not come true within {seconds:g} s"
        time.sleep(0.02)
