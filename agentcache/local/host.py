"""The app of an engine on an event loop of its own, in a thread of this process: no socket, no signal, no port."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from typing import TYPE_CHECKING

from agentcache.local.exchange import Exchange

if TYPE_CHECKING:
    from fastapi import FastAPI

logger = logging.getLogger(__name__)

_LOOK_S = 0.2
"""How often it is looked whether the main thread has ended."""
_ENDING_S = 2.0
"""How long requests get to end themselves when they were told to; then they are cancelled."""
_CLOSED = "the client was closed"


class Host:
    """
    Args:
        app: not started yet; it is started here with its engine, and ended at the end.

    The thread is no daemon, or the interpreter would end it in the middle of what the disk tier owes.  So it must end by itself
    when the main thread does although nobody closed it, and before an exit handler could: those run when all other threads have
    ended.  Hence a look at the main thread now and then.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._running: set[Exchange] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        """Guarded by the lock, so that nothing slips in behind the last one."""
        self._lock = threading.Lock()
        self._context = contextvars.Context()
        """Of all tasks: what the caller's context holds is the caller's."""
        self._thread = threading.Thread(target=self._run, name="agentcache-local", daemon=False)

    @property
    def closed(self) -> bool:
        """Nothing is taken in any more."""
        return self._closed

    def start(self) -> None:
        """Returns when requests are served.

        Raises:
            Exception: what kept it from being so.
        """
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def begin(self, exchange: Exchange) -> bool:
        """Have the app answer; ``False`` when it ended.  From any thread."""
        loop = self._loop
        with self._lock:
            if self._closed or loop is None:
                return False
            self._running.add(exchange)
            loop.call_soon_threadsafe(self._answer, exchange, context=self._context)
        return True

    def stop_soon(self) -> None:
        """Safe on any thread and at any moment, also for the garbage collector.  Idempotent."""
        loop = self._loop
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._stopping.set)
        except RuntimeError:
            logger.debug("a host was stopped after its end")

    def stop(self) -> None:
        """End what runs as a server does that is stopped, and return when no thread is left.  Idempotent."""
        self.stop_soon()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.is_set():
                logger.exception("the event loop of a local client failed")
            self._failure = error
        finally:
            with self._lock:
                self._closed = True
                left = tuple(self._running)
            for exchange in left:
                exchange.end(_CLOSED)
            self._ready.set()

    async def _serve(self) -> None:
        async with self._app.router.lifespan_context(self._app):
            self._loop = asyncio.get_running_loop()
            self._ready.set()
            await self._stopped()
            await self._end_all()

    async def _stopped(self) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        main = threading.main_thread()
        while main.is_alive() and not stopping.done():
            await asyncio.wait([stopping], timeout=_LOOK_S)
        stopping.cancel()

    async def _end_all(self) -> None:
        with self._lock:
            self._closed = True
        self._app.state.lifecycle.close()
        for exchange in tuple(self._running):
            exchange.hurry()
        await asyncio.sleep(0)  # those taken in last become tasks
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_ENDING_S)
            for task in late:
                task.cancel()

    def _answer(self, exchange: Exchange) -> None:
        task = asyncio.ensure_future(exchange.run(self._app))
        self._tasks.add(task)

        def ended(done: asyncio.Task[None]) -> None:
            self._tasks.discard(done)
            with self._lock:
                self._running.discard(exchange)

        task.add_done_callback(ended)
