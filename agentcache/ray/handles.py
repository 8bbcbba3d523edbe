"""Replicas behind a Ray Serve handle."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import DeploymentUnavailableError, RayServeException

from agentcache.ray.exchange import AnswerCutError, Sent
from agentcache.ray.parts import Call, News, NoReplicaError, Part, ReplicaLostError, Taken, Whole
from agentcache.routing.feed import Cursor

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from agentcache.routing.profile import ModelProfile

logger = logging.getLogger(__name__)
T = TypeVar("T")

BROADCAST_S = 10.0
"""How long each replica may take to answer what all are asked."""
NEWS_S = 5.0
"""The same for what is asked every second, and takes a replica no time: who says nothing for so long hangs."""
FIRST_S = 120.0
"""How long the first words of a replica may take that has just come up."""


class HandleReplicas:
    """
    Args:
        handle: of the deployment of ``EngineReplica``; its router is ``CallRouter``.
    """

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle
        self._exchange = handle.options(method_name="exchange", stream=True)

    async def ask(self, call: Call) -> AsyncIterator[Sequence[Part]]:
        response = _alone(self._exchange.remote, call)
        taken: str | None = None
        over = False
        try:
            async for batch in response:
                if taken is None and isinstance(batch[0], Taken):
                    taken = batch[0].replica
                yield batch
            over = True
        except (RayError, RayServeException) as error:
            over = True
            raise _as_ours(error, taken) from error
        except NoReplicaError:
            over = True
            raise
        finally:
            if not over:
                response.cancel()

    async def ask_all(self, sent: Sent) -> list[Whole]:
        return await self._broadcast("whole", sent)

    async def news(self, cursors: Mapping[str, Cursor]) -> list[News]:
        return await self._broadcast("news", dict(cursors), timeout_s=NEWS_S)

    async def profile(self) -> ModelProfile:
        profiles: list[ModelProfile] = await self._broadcast("profile", timeout_s=FIRST_S)
        if not profiles:
            raise NoReplicaError("no replica is there yet")
        return profiles[0]

    async def _broadcast(self, method: str, *args: Any, timeout_s: float = BROADCAST_S) -> list[Any]:
        """What each replica returned; who failed, or is late, is left out."""
        asking = asyncio.ensure_future(self._results(method, args))
        if not (await asyncio.wait([asking], timeout=timeout_s))[0]:
            asking.cancel()
            return []
        answers = asking.result()
        if answers:
            await asyncio.wait(answers, timeout=timeout_s)
        results = []
        for answer in answers:
            if not answer.done() or answer.cancelled():
                answer.cancel()
                logger.info("a replica did not answer to %s in %g s", method, timeout_s)
            elif (failure := answer.exception()) is not None:
                logger.info("a replica did not answer to %s: %s", method, str(failure).partition("\n")[0])
            else:
                results.append(answer.result())
        return results

    async def _results(self, method: str, args: Sequence[Any]) -> list[asyncio.Future[Any]]:
        """One for each replica; with Ray's own ``results_async``, one that hangs would silence all others."""
        try:
            response = _alone(self._handle.broadcast, method, *args)
            sent = await response._fetch_replica_results_async()
        except DeploymentUnavailableError:  # not deployed yet
            return []
        except (RayError, RayServeException) as error:
            logger.warning("the replicas could not be asked for %s: %s", method, error)
            return []
        return [asyncio.ensure_future(result.get_async()) for result in sent]


def _alone(call: Callable[..., T], *args: Any) -> T:
    """Call Ray in a context of its own.

    Two calls from one HTTP request would have the same internal id, and the router gives each replica to the id that it was
    chosen for.
    """
    return contextvars.Context().run(call, *args)


def _as_ours(error: Exception, taken: str | None) -> Exception:
    cause = getattr(error, "cause", None)
    for found in (error, cause):
        if isinstance(found, AnswerCutError | NoReplicaError):
            return found
    if isinstance(error, RayTaskError):
        logger.error("replica %s failed: %s", taken, error)
        return AnswerCutError(f"replica {taken} failed")
    return ReplicaLostError(str(error).partition("\n")[0], taken)
