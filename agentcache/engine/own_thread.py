"""Work on a thread that ends with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def on_own_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, from a new thread.  Ctrl-C ends the waiting at once, and the thread with the process."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  raised again by who asked
            errors.append(error)

    thread = threading.Thread(target=run, name="agentcache-build", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
