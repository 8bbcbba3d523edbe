"""The life of an engine in the process of its client: made once, used from any thread, ended by whoever comes first."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING

from agentcache.local.exchange import Exchange, Head
from agentcache.local.host import Host
from agentcache.settings import Settings
from agentcache.startup import Progress, calm_openmp, serving_packages, shown
from agentcache_sdk.errors import AgentCacheError

if TYPE_CHECKING:
    from agentcache.engine.loop import EngineInfo

CLOSED = "the client is closed"
_FORKED = (
    "this client was made before a fork, and a fork takes no threads along: make a client in the process that uses it"
)


class LocalRuntime:
    """Transports and open streams hold it; when none is left it ends, closed or not.

    Args:
        progress: told what loading does; ``True``: as ``agentcache serve`` shows it, ``None``: only in a terminal.
    """

    def __init__(self, settings: Settings, progress: Progress | bool | None) -> None:
        self.settings = settings
        self._progress = progress
        self._pid = os.getpid()
        self._loading = threading.Lock()
        self._host: Host | None = None
        self._info: EngineInfo | None = None
        self._closed = False

    @property
    def info(self) -> EngineInfo:
        """
        Raises:
            AgentCacheError: the model is not loaded yet.
        """
        if self._info is None:
            raise AgentCacheError("the model is not loaded yet: enter `async with`, or make a call, first")
        return self._info

    def start(self) -> None:
        """Load the model and begin to serve, unless that was done.  Blocks for as long as loading takes.

        Raises:
            AgentCacheError: the client is closed.
            agentcache.errors.AgentCacheError: the model cannot be loaded, or a package is missing.
        """
        self._check_process()
        with self._loading:
            self._check_open()
            if self._host is not None:
                return
            host = self._load()
            # Until here a failure left nothing behind; from here on whoever closes finds the host.
            weakref.finalize(self, host.stop_soon).atexit = False
            self._host = host
        if self._closed:  # in the meantime
            host.stop()
            raise AgentCacheError(CLOSED)

    async def start_beside(self) -> None:
        """``start``, blocking no event loop.  On a thread that nobody waits for when Ctrl-C ends the program meanwhile."""
        if self._host is not None:
            return
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def load() -> None:
            failure: BaseException | None = None
            try:
                self.start()
            except BaseException as error:  # noqa: BLE001  raised again by who waits
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop was closed, and nobody waits any more
                loop.call_soon_threadsafe(tell, failure)

        threading.Thread(target=load, name="agentcache-local-load", daemon=True).start()
        await done

    def begin(self, exchange: Exchange) -> None:
        """
        Raises:
            AgentCacheError: the client is closed, or belongs to another process.
        """
        self._check_process()
        self._check_open()
        if self._host is None or not self._host.begin(exchange):
            raise AgentCacheError(CLOSED)

    def checked(self, head: Head) -> Head:
        """
        Raises:
            AgentCacheError: the answer is that the engine ends; to ask again, as clients of servers do, would be of no use.
        """
        if head.status == 503 and (self._closed or self._host is None or self._host.closed):
            raise AgentCacheError(CLOSED)
        return head

    def close(self) -> None:
        """End what runs, write what the disk tier owes, and return when no thread is left.  Idempotent."""
        self._closed = True
        if self._host is not None and os.getpid() == self._pid:
            self._host.stop()

    def _load(self) -> Host:
        with calm_openmp():
            with serving_packages("a client in one process with the engine"):
                from agentcache.engine.build import build_engine
                from agentcache.server.app import create_app
            engine = shown(lambda progress: build_engine(self.settings, progress=progress), self._progress)
        host = Host(create_app(engine, self.settings))
        host.start()
        self._info = engine.info
        return host

    def _check_open(self) -> None:
        if self._closed:
            raise AgentCacheError(CLOSED)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise AgentCacheError(_FORKED)
