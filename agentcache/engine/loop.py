"""The engine on a thread of its own, and the asyncio face that the server talks to.

::

    event loop                          engine thread
    submit() ── call in the inbox ────► add, step, step, step …
    OutputStream ◄── one wake-up a step, with everything that step produced
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agentcache.cache.hashing import namespace_root
from agentcache.cache.manager import CacheManager
from agentcache.cache.pins import Pin
from agentcache.cache.public import PublicPrefixes
from agentcache.cache.tokens import Bookmark, PagedTokens
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.engine.bounds import Bounds, check_request
from agentcache.engine.core import EngineCore
from agentcache.engine.neighbours import Neighbour
from agentcache.engine.spelling import Spelling
from agentcache.engine.stats import EngineStats
from agentcache.engine.streams import OutputStream
from agentcache.errors import AgentCacheError, EngineFailingError, EngineStoppedError, QueueFullError, RequestError
from agentcache.request import FinishReason, Output, Request, SamplingParams, Standing
from agentcache.scheduler.scheduler import Scheduler
from agentcache.settings import Settings
from agentcache.store.base import PageStore

logger = logging.getLogger(__name__)
T = TypeVar("T")

_LONGEST_RETRY_S = 60
"""Clients that find the queue full are not sent away for longer."""

_NEWCOMER = Standing()

_CHECK_AFTER_S = 2.0
"""Rest after which the invariants are checked."""

_SAVE_S = 2.5
"""How long the lower tiers may take to write what they owe when the engine stops."""

_STUCK_S = 0.01
"""Rest before work that did not move is tried again."""

_PART_S = 0.2
"""How long each neighbour may take to end."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What clients may know of the engine.  Lengths in tokens; ``created`` in Unix seconds."""

    model_name: str
    max_model_len: int
    page_size: int
    num_pages: int
    vocab_size: int
    max_running: int
    capacity: int
    created: int
    device: str
    """Where and in what the model runs, such as ``cpu, float32``."""


class AsyncEngine:
    """Owns the engine thread.

    Args:
        core: the engine; from ``start`` on only its thread touches it.
        info: what clients may know.
        settings: what the server was told.
        tokenizer, renderer: of the served model; safe to use from any thread.
        root_base: the first ingredients of every namespace (model revision, adapter).
        public: beginnings that every namespace shares.
    """

    def __init__(
        self,
        core: EngineCore,
        *,
        info: EngineInfo,
        settings: Settings,
        tokenizer: Tokenizer,
        renderer: ChatRenderer,
        root_base: tuple[str, ...],
        public: PublicPrefixes | None = None,
    ) -> None:
        self.info = info
        self.settings = settings
        self.tokenizer = tokenizer
        self.renderer = renderer
        self.root_base = root_base
        self.neighbours: list[Neighbour] = []
        """What it works with outside this process.  Filled before ``start``."""
        self.page_store: PageStore | None = None
        """The store that it shares with other servers, opened.  Set before ``start``."""
        self._public = public or PublicPrefixes(namespace_root(*root_base, "public"), core.manager.page_size)
        self._core = core
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._outbox: dict[asyncio.AbstractEventLoop, list[tuple[OutputStream, Output]]] = {}
        self._queued = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._stats = core.stats()
        self._broken: str | None = None
        self._ended: str | None = None
        """Why no call is taken in any more; guarded by the lock, so that none can slip in behind the last one."""
        self._unchecked = False
        self._moved_at = 0.0
        self._thread = threading.Thread(target=self._run, name="agentcache-engine", daemon=True)
        if core.far is not None:
            core.far.wake = self._wake

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """End every request with an error and stop the thread after its current step.  Idempotent."""
        self._stopping.set()
        self._wake()
        # Polled, not joined on a worker thread: that would keep the process alive for as long as a step hangs.
        while self._thread.is_alive():
            await asyncio.sleep(0.005)

    def healthy(self) -> tuple[bool, str]:
        """Whether requests can be served, and if not, why."""
        if self._stopping.is_set():
            return False, "shutting down"
        if self._broken is not None:
            return False, self._broken
        if not self._thread.is_alive():
            return False, "the engine is not running"
        return not self._core.health.failing, self._core.health.reason

    # -- requests -------------------------------------------------------------------------------------------------

    def paged(self, ids: Sequence[int], root: bytes, bookmark: Bookmark | None = None) -> PagedTokens:
        """``ids`` in pages, as requests of the namespace ``root`` use them.

        Raises:
            RequestError: an id below 0 or above 2**32 - 1.
        """
        try:
            return self._public.paged(ids, root, bookmark.tokens if bookmark is not None else None)
        except OverflowError:
            message = f"prompt: got token ids from {min(ids)} to {max(ids)}, expected 0 to {self.info.vocab_size - 1}"
            raise RequestError(message, "prompt") from None

    def submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        root: bytes,
        request_id: str,
        standing: Standing = _NEWCOMER,
        bookmark: Bookmark | None = None,
    ) -> OutputStream:
        """Queue a prompt of token ids; call on the event loop.  Never blocks.

        Args:
            bookmark: of the conversation that the prompt belongs to; what it knows of the prompt's beginning is not
                worked out again, and it learns of what comes now.

        Raises:
            RequestError: it can never be served.
            QueueFullError: too many wait.
            EngineFailingError: steps fail one after another.
            EngineStoppedError: nothing is served any more.
        """
        health = self._core.health
        if health.failing:
            raise EngineFailingError(f"{health.reason}; try again later", math.ceil(health.pause))
        loop = asyncio.get_running_loop()
        stream = OutputStream(
            params.n,
            abort=lambda: self._inbox.put(lambda: self._core.abort(request_id)),
            spelling=Spelling(lambda: self._core.make_text((), params.shown_tokens)),
        )

        def sink(output: Output) -> None:
            self._outbox.setdefault(loop, []).append((stream, output))

        tokens = self.paged(prompt, root, bookmark)
        request = Request(request_id, prompt, params, root, sink, standing.priority, tokens, bookmark, standing.program)
        check_request(request, self._bounds)
        self._take_place()

        def add() -> None:
            try:
                self._core.add(request)
            except Exception as error:  # checked above; should the engine still refuse, nobody waits for ever
                logger.exception("request %s was not taken in", request_id)
                ours = isinstance(error, AgentCacheError)
                reason = str(error) if ours else "the engine failed to take the request in"
                for index in range(params.n):
                    sink(Output(index, "", finish_reason=FinishReason.ERROR, error=reason))
            finally:
                with self._lock:
                    self._queued -= 1

        self._post(add)
        return stream

    def _post(self, call: Callable[[], None]) -> None:
        """Have ``call`` made on the engine's thread; every call that is taken here is made."""
        with self._lock:
            if self._ended is not None:
                raise EngineStoppedError(self._ended)
            self._inbox.put(call)

    @property
    def _bounds(self) -> Bounds:
        return self._core.bounds

    def _take_place(self) -> None:
        """Count a request that is on its way, so that a burst cannot slip past the queue limit."""
        limit = self.settings.max_waiting
        with self._lock:
            waiting = len(self._core.scheduler.waiting) + self._queued
            if waiting >= limit:
                raise QueueFullError(f"{waiting} requests wait, and no more than {limit} may", self._retry_after())
            self._queued += 1

    def _retry_after(self) -> int:
        """Seconds in which a tenth of the queue is admitted, at the pace of late."""
        pace = self._stats.seconds_per_admission
        if pace is None:
            return 1
        return max(1, min(_LONGEST_RETRY_S, math.ceil(0.1 * self.settings.max_waiting * pace)))

    # -- looking in, and test hooks -------------------------------------------------------------------------------

    def stats(self) -> EngineStats:
        """As of the last step."""
        return self._stats

    async def flush(self) -> int:
        """Drop every cached page that nobody holds; how many there were."""
        return await self._on_thread(self._core.manager.flush)

    def now(self) -> float:
        """Seconds on the engine's clock, which test hooks can push forward."""
        return self._core.clock()

    async def pin(self, ids: Sequence[int], root: bytes, ttl_s: float, bookmark: Bookmark | None = None) -> Pin | None:
        """Keep what is cached of ``ids`` for a time, inside the pin budget; ``None`` when nothing of it is cached.

        The pin's ``pages`` say how much was granted, its ``until`` when it ends on ``now``'s clock.
        """
        core = self._core

        def pin() -> Pin | None:
            return core.manager.pin(self.paged(ids, root, bookmark), core.clock() + ttl_s)

        return await self._on_thread(pin)

    def unpin(self, pin: Pin) -> None:
        """End a pin soon; does nothing when it has lapsed or the engine has stopped."""
        try:
            self._post(lambda: self._core.manager.unpin(pin))
        except EngineStoppedError:
            logger.debug("the engine stopped before a pin was given back")

    async def settled(self) -> None:
        """Wait until everything asked before is done and ``stats`` shows it; returns at once when the engine has stopped."""
        with contextlib.suppress(EngineStoppedError):
            await self._on_thread(lambda: None)

    def is_pinned(self, pin: Pin) -> bool:
        """Whether a pin still holds: it has not run out, been given back or made room."""
        return pin.until > self.now() and pin in self._core.manager.pins

    async def inspect(self, look: Callable[[CacheManager], T]) -> T:
        """What ``look`` sees in the cache between two steps; it must not change anything.

        Raises:
            EngineStoppedError: no step is made any more.
        """
        return await self._on_thread(lambda: look(self._core.manager))

    def look_soon(self, look: Callable[[CacheManager], None]) -> None:
        """Have ``look`` see the cache between two steps, without waiting for it; nobody looks once the engine has stopped."""
        try:
            self._post(lambda: look(self._core.manager))
        except EngineStoppedError:
            logger.debug("the engine stopped before its cache was looked at")

    async def look(self, look: Callable[[Scheduler], T]) -> T:
        """What ``look`` sees of who runs and who waits, between two steps; it must not change anything.

        Raises:
            EngineStoppedError: no step is made any more.
        """
        return await self._on_thread(lambda: look(self._core.scheduler))

    async def check(self) -> list[str]:
        """Run every invariant; what is broken, in sentences."""
        return await self._on_thread(self._core.check)

    async def advance_clock(self, seconds: float) -> None:
        """Raises ValueError for a negative number."""
        await self._on_thread(lambda: self._core.clock.advance(seconds))

    async def inject_fault(self, site: str, at: int, delay_ms: float | None = None) -> None:
        """Raises ValueError for an unknown site or ``at`` below 1."""
        await self._on_thread(lambda: self._core.faults.arm(site, at, delay_ms))

    async def _on_thread(self, call: Callable[[], T]) -> T:
        """Run ``call`` between two steps.

        Raises:
            EngineStoppedError: no step is made any more.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            try:
                result = call()
                self._stats = self._core.stats()
            except Exception as error:  # noqa: BLE001  handed to the caller
                _tell(loop, settle, None, error)
            else:
                _tell(loop, settle, result, None)

        self._post(run)
        return await done

    # -- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        moved = False
        try:
            while not self._stopping.is_set():
                self._take_in(wait=0 if moved else self._stuck_wait() if self._core.has_work else self._idle_wait())
                moved = self._step()
                self._check_when_idle(moved)
        except Exception:
            logger.exception("the engine thread died")
            self._broken = "the engine stopped after an internal error"
            raise
        finally:
            self._end("the server is shutting down" if self._stopping.is_set() else "the engine stopped")

    def _wake(self) -> None:
        """End the engine thread's rest, on whatever thread."""
        self._inbox.put(lambda: None)

    def _stuck_wait(self) -> float:
        """Seconds to rest while there is work and none of it can move: pages are on their way, whose arrival ends the rest.

        There should be no other reason, and no work that waits for nothing must spin.
        """
        fetch = self._core.far.wait_s() if self._core.far is not None else None
        return _STUCK_S if fetch is None else min(max(fetch, 0.001), 0.5)

    def _idle_wait(self) -> float | None:
        """Seconds until something is to be done although nobody asks: a pin ends, or what was done is to be checked."""
        expiry = self._core.manager.pins.next_expiry()
        due = (expiry, self._core.health.next_probe())
        waits = [min(max(time_ - self._core.clock(), 0.001), 60) for time_ in due if time_ is not None]
        if self._unchecked:
            waits.append(_CHECK_AFTER_S)
        return min(waits, default=None)

    def _check_when_idle(self, moved: bool) -> None:
        """After a while of rest, recount everything once; what is broken is logged, and the index made anew."""
        now = time.monotonic()
        if moved or self._core.has_work:
            self._unchecked, self._moved_at = True, now
        elif self._unchecked and now - self._moved_at >= _CHECK_AFTER_S:
            self._unchecked = False
            if self._core.heal():
                self._stats = self._core.stats()

    def _end(self, reason: str) -> None:
        """Take nothing in any more; what is there, and what came in during the last step, ends with an error."""
        with self._lock:
            self._ended = reason
        try:
            self._take_in(wait=0)
        finally:
            self._core.fail_all(reason)
            try:
                self._stats = self._core.stats()
            finally:
                self._deliver()
            self._core.save(_SAVE_S)
            self._part()

    def _part(self) -> None:
        for neighbour in self.neighbours:
            try:
                neighbour.close(_PART_S)
            except Exception:
                logger.exception("%s was not closed well", neighbour.name)

    def _take_in(self, *, wait: float | None) -> None:
        """Make the calls that came in; wait for one ``wait`` seconds, or for ever when that is ``None``."""
        try:
            self._inbox.get(block=wait != 0, timeout=wait)()
            while True:
                self._inbox.get_nowait()()
        except queue.Empty:
            pass

    def _step(self) -> bool:
        moved = self._core.step()
        self._stats = self._core.stats()
        self._deliver()
        return moved

    def _deliver(self) -> None:
        outbox, self._outbox = self._outbox, {}
        for loop, outputs in outbox.items():
            _tell(loop, _push_all, outputs)


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> None:
    """Make ``call`` on ``loop``; where that was closed, nobody is left to hear it."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        logger.debug("an event loop was closed before it was told of %s", call)


def _push_all(outputs: list[tuple[OutputStream, Output]]) -> None:
    for stream, output in outputs:
        stream.push(output)
