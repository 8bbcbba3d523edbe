"""An engine and its whole application in a Ray actor; requests come in by calls instead of connections."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

from agentcache.cache.residency import watch_residency
from agentcache.errors import EngineStoppedError
from agentcache.local.exchange import Head
from agentcache.ray.exchange import Sent, answered
from agentcache.ray.log_lines import log_as_replica
from agentcache.ray.parts import Asked, News, Part, Taken, Trailer, Whole
from agentcache.routing.feed import Cursor, PageFeed
from agentcache.routing.loads import ReplicaLoad
from agentcache.settings import Settings
from agentcache.startup import calm_openmp

if TYPE_CHECKING:
    from fastapi import FastAPI

    from agentcache.engine.loop import AsyncEngine
    from agentcache.routing.profile import ModelProfile
    from agentcache.scheduler.scheduler import Scheduler
    from agentcache.sessions.vault import SessionVault

logger = logging.getLogger(__name__)

NEWS_WITH_ANSWER = 512
"""Pages that may have come or gone for an answer to bring the news along."""
PACE_S = 0.005
"""Between two pieces of an answer: what passes through three processes costs each of them something, however small it is."""
LOAD_S = 0.2
"""How old what is said of the load may be."""
STEP_S = 0.5
"""How long is waited for the end of a step to see the load; a long one must not make a replica look dead."""


class EngineReplica:
    """``agentcache serve`` without a port: the same engine, the same application, the same answers.

    Knows nothing of Ray; ``deployments.Replica`` makes one in an actor.  Everything is called on one event loop.

    Args:
        settings: of one server; ``settings.replica`` is its name.
        vault: where sessions are kept for other replicas, if not in ``settings.store``.
    """

    def __init__(self, settings: Settings, vault: SessionVault | None = None) -> None:
        if settings.replica is None:
            raise ValueError("got settings without a replica's name, expected one")
        self.name = settings.replica
        self._settings = settings
        self._vault = vault
        self._feed = PageFeed()
        self._load = ReplicaLoad()
        self._load_at = float("-inf")
        self._weighing: asyncio.Task[None] | None = None
        self._lifespan = AsyncExitStack()
        self._engine: AsyncEngine | None = None
        self._app: FastAPI | None = None

    async def start(self) -> None:
        """Load the model and begin to serve.

        Raises:
            AgentCacheError: it cannot be served.
        """
        from agentcache.server.app import create_app

        settings = self._settings
        engine = await asyncio.to_thread(_loaded, settings)
        app = create_app(engine, settings, vault=self._vault)
        if settings.access_log != "off":
            self._lifespan.enter_context(log_as_replica(self.name, settings.access_log))
        await self._lifespan.enter_async_context(app.router.lifespan_context(app))
        await engine.inspect(lambda manager: watch_residency(manager, self._feed.hear))
        self._engine, self._app = engine, app

    async def stop(self) -> None:
        """End what still runs, write what the lower tiers owe, and end the engine's thread.  Idempotent."""
        if self._app is not None:
            self._app.state.lifecycle.close()
        await self._lifespan.aclose()

    # -- requests ---------------------------------------------------------------------------------------------------

    async def exchange(self, asked: Asked) -> AsyncIterator[Sequence[Part]]:
        """A ``Taken`` at once; then the head and the body as they come; with the last of it a ``Trailer``.

        Closed or cancelled, the request ends as one does whose client hung up.

        Raises:
            AnswerCutError: the application failed.
        """
        yield [Taken(self.name)]
        batches = answered(self._started_app, asked.sent)
        try:
            async for batch in batches:
                yield [*batch.parts, self._trailer(asked.cursors)] if batch.last else batch.parts
                if not batch.last:
                    await asyncio.sleep(PACE_S)  # what comes meanwhile goes together
        finally:
            await batches.aclose()  # type: ignore[attr-defined]  # an async generator

    async def whole(self, sent: Sent) -> Whole:
        """The answer to ``sent`` in one piece, for routes that every replica answers a part of."""
        head = Head(500, ())
        body = []
        async for batch in answered(self._started_app, sent):
            for part in batch.parts:
                if isinstance(part, Head):
                    head = part
                else:
                    body.append(part)
        return Whole(self.name, head, b"".join(body))

    # -- what it says of itself -------------------------------------------------------------------------------------

    async def news(self, cursors: Mapping[str, Cursor]) -> News:
        """Pages that came and went since the asker's cursor, and how busy it is."""
        engine = self._started_engine
        healthy, reason = engine.healthy()
        if healthy:
            await self._weigh()
        delta = self._feed.since(cursors.get(self.name), load=self._load)
        troubles = {neighbour.name: neighbour.trouble() for neighbour in engine.neighbours}
        return News(self.name, delta, healthy, reason, troubles)

    async def profile(self) -> ModelProfile:
        """What an ingress must know to read requests as this replica does."""
        return await asyncio.to_thread(_profile, self._started_engine)

    def check_health(self) -> None:
        """
        Raises:
            RuntimeError: requests cannot be served.
        """
        healthy, reason = self._started_engine.healthy()
        if not healthy:
            raise RuntimeError(f"replica {self.name}: {reason}")

    def _trailer(self, cursors: Mapping[str, Cursor]) -> Trailer:
        return Trailer(self._feed.recent(cursors.get(self.name), NEWS_WITH_ANSWER))

    async def _weigh(self) -> None:
        if time.monotonic() - self._load_at < LOAD_S:
            return
        if self._weighing is None or self._weighing.done():
            self._weighing = asyncio.ensure_future(self._look_at_load())
        await asyncio.wait([self._weighing], timeout=STEP_S)

    async def _look_at_load(self) -> None:
        began = time.monotonic()
        with suppress(EngineStoppedError):
            self._load = await self._started_engine.look(load_of)
            self._load_at = began

    @property
    def _started_app(self) -> FastAPI:
        assert self._app is not None, "not started"
        return self._app

    @property
    def _started_engine(self) -> AsyncEngine:
        assert self._engine is not None, "not started"
        return self._engine


def load_of(scheduler: Scheduler) -> ReplicaLoad:
    """Prompt tokens that are to be computed, as far as is known, and sequences that generate."""
    size = scheduler.manager.page_size
    tokens = running = 0
    for waiter in scheduler.waiting.in_order(scheduler.processed):
        tokens += max(0, waiter.sequence.prompt_len - (waiter.pages + waiter.below) * size)
    for sequence in (*scheduler.running, *scheduler.preempted):
        ready = 0 if sequence.lease is None else sequence.lease.computed
        left = max(0, sequence.prompt_len - ready)
        tokens += left
        running += not left
    return ReplicaLoad(tokens, running)


def _profile(engine: AsyncEngine) -> ModelProfile:
    from agentcache.model.hub import resolve_model
    from agentcache.routing.profile import profile_of

    settings = engine.settings
    return profile_of(engine, resolve_model(settings.model, settings.home).folder)


def _loaded(settings: Settings) -> AsyncEngine:
    with calm_openmp():
        from agentcache.engine.build import build_engine

        return build_engine(settings, progress=lambda text: logger.info("%s", text))
