"""Servers of asyncio beside a test, which blocks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from typing import Any


@contextlib.contextmanager
def served(start: Coroutine[Any, Any, asyncio.Server]) -> Iterator[tuple[int, asyncio.AbstractEventLoop]]:
    """The port of what ``start`` starts, and the loop that it runs on, in a thread of its own."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(start)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def stop() -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        yield server.sockets[0].getsockname()[1], loop
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
