"""The classes that Ray Serve makes actors of: thin, since everything that can be tested without Ray is elsewhere."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ray import serve

from agentcache.ray.exchange import Sent
from agentcache.ray.handles import HandleReplicas
from agentcache.ray.ingress import Ingress
from agentcache.ray.parts import Asked, News, Part, Whole
from agentcache.ray.places import own_settings
from agentcache.ray.replica import EngineReplica
from agentcache.ray.router import name_of
from agentcache.ray.settings import ClusterSettings
from agentcache.ray.vault import VaultPlace
from agentcache.ray.without_id import WithoutId
from agentcache.routing.feed import Cursor
from agentcache.settings import Settings

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle
    from starlette.types import ASGIApp

    from agentcache.routing.profile import ModelProfile


logger = logging.getLogger(__name__)


class Replica:
    """One engine.  Ray calls ``__init__`` when it begins, ``__del__`` when its last request has ended.

    Args:
        vault: where sessions are kept for other replicas; ``None``: in ``settings.store``, or nowhere.
    """

    async def __init__(  # type: ignore[misc]  # Ray awaits it
        self, settings: Settings, vault: VaultPlace | None
    ) -> None:
        _one_thread_a_text()
        context = serve.get_replica_context()
        mine = own_settings(settings, name_of(context.replica_id), context.rank.local_rank)
        self._engine = EngineReplica(mine, None if vault is None else vault.open())
        await self._engine.start()
        _tell(f"replica {mine.replica} is up, process {os.getpid()}")

    async def exchange(self, asked: Asked) -> AsyncIterator[Sequence[Part]]:
        parts = self._engine.exchange(asked)
        try:
            async for batch in parts:
                yield batch
        finally:
            await parts.aclose()  # type: ignore[attr-defined]  # an async generator

    async def whole(self, sent: Sent) -> Whole:
        return await self._engine.whole(sent)

    async def news(self, cursors: Mapping[str, Cursor]) -> News:
        return await self._engine.news(cursors)

    async def profile(self) -> ModelProfile:
        return await self._engine.profile()

    def check_health(self) -> None:
        self._engine.check_health()

    async def __del__(self) -> None:
        await self._engine.stop()


@serve.ingress()  # the application is made with each replica, by the method below
class Front:
    """One ingress."""

    def __init__(self, engines: DeploymentHandle, settings: Settings, cluster: ClusterSettings) -> None:
        _one_thread_a_text()
        first = serve.get_replica_context().rank.rank == 0  # of several that see the same, one tells it
        self._app = Ingress(HandleReplicas(engines), settings, cluster, _tell if first else logger.info)

    def close(self) -> int:
        return self._app.close()

    def cut(self) -> None:
        self._app.cut()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return WithoutId(self._app)


def _tell(line: str) -> None:
    """On standard error, which Ray brings to whoever started the cluster."""
    # Serve may have put a log file in the place of sys.stderr, and something of its own in that of print.
    assert sys.__stderr__ is not None
    sys.__stderr__.write(f"{line}\n")
    sys.__stderr__.flush()


def _one_thread_a_text() -> None:
    """Each text is tokenised on the thread of its own request, so that a short one never queues behind two long ones."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def as_deployment(cls: type, **options: Any) -> Any:
    """``cls`` as a deployment of Ray Serve."""
    return serve.deployment(cls, **options)
