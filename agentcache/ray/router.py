"""Ray Serve's request router, as little of it as can be: a request says itself where it wants to go (``parts.Call``).

Ray's interface for routers is alpha.  What is relied on here is in its base class since 2.60:

* ``choose_replicas`` returns groups of candidates, the best first, and is asked again until one of them has room;
* the base class gives a replica to the request that it was chosen for, found by its internal id.  Calls from one HTTP request
  would share that id, and the second would then get the first one's replica, so callers make each call in a context of its own
  (``handles``); ``FIFOMixin``, which gives a replica to whoever waits longest, must not be mixed in.
"""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from agentcache.ray.parts import Call, NoReplicaError


def name_of(replica: ReplicaID) -> str:
    """The name that a replica has in ids, metrics and logs: of one life, 8 of ``a-z0-9``."""
    return str(replica.unique_id).lower()


class CallRouter(RequestRouter):  # type: ignore[misc]  # Ray comes without types
    """Sends each ``Call`` where it wants to go, and everything else to whoever has room."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        call = _call_of(pending_request)
        if pending_request is None or call is None:
            return [candidate_replicas]
        # Between two rounds over the same replicas the base class is to sleep a little.
        pending_request.routing_context.should_backoff = True
        there = {name_of(replica.replica_id): replica for replica in candidate_replicas}
        try:
            groups = call.choose(there)
        except Exception as error:  # noqa: BLE001  whatever it is, who waits for the replica must hear of it
            if not pending_request.future.done():
                pending_request.future.set_exception(_told(error))
            return [candidate_replicas]  # so that the base class looks at the request again, and finds that it is over
        return [[there[name] for name in group] for group in groups]


def _call_of(pending: PendingRequest | None) -> Call | None:
    first: Any = None if pending is None or not pending.args else pending.args[0]
    return first if isinstance(first, Call) else None


def _told(error: Exception) -> Exception:
    return error if isinstance(error, NoReplicaError) else NoReplicaError(f"routing failed: {error!r}")
