"""The application in front of all replicas: reads what a request is about, and has one of them answer it.

::

    head ─► key ─► body ─► RoutingKey ─► replica A takes it ─► head and first piece ─► pieces …… end
     │       │      │                         │                       │
     │     401    413      lost before its first byte: once more,     lost behind it: the stream ends with an
    health                 on another replica, ATTEMPTS in all        error event of its endpoint

Every request may be sent again as long as nothing of its answer was told: a turn of a session carries a ``turn_id``, the client's
or one that is added here, so that a turn which was committed by a replica that died is answered as it was and not made again;
everything else is repeatable, or leaves at most something that expires (a session that nobody knows of).

Knows nothing of Ray: ``Replicas`` reach the replicas.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from urllib.parse import parse_qsl
from uuid import uuid4

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from agentcache.local.exchange import Head
from agentcache.ray.bodies import InTime
from agentcache.ray.cut import replica_lost
from agentcache.ray.exchange import AnswerCutError, Sent, sent_from
from agentcache.ray.health import cluster_health
from agentcache.ray.merging import merged
from agentcache.ray.own_answers import OwnAnswers
from agentcache.ray.parts import NoReplicaError, Part, ReplicaLostError, Taken, Trailer, Whole
from agentcache.ray.replicas import Replicas
from agentcache.ray.settings import ClusterSettings
from agentcache.ray.steering import NEWS_S, UNREAD, Steering, Trip
from agentcache.ray.visits import Answer, Visit
from agentcache.replica_ids import NAME
from agentcache.routing.requests import Kind, ReadRequest
from agentcache.routing.router import RoutingPolicy
from agentcache.server.errors import ApiError, internal_error, shutting_down
from agentcache.server.gate.auth import Keys
from agentcache.server.gate.json_body import read_body
from agentcache.settings import Settings

logger = logging.getLogger(__name__)

ATTEMPTS = 3
"""Replicas that a request is sent to, one after the other, while they die under it."""
_ONE_REPLICA = "/replicas/"
_TURNS = ("/v1/chat/completions", "/v1/completions")
_BACK_SOON_S = 2


class Ingress:
    """An ASGI application.

    Args:
        settings: of every replica.
        tell: is given lines for whoever started it.
    """

    def __init__(
        self,
        replicas: Replicas,
        settings: Settings,
        cluster: ClusterSettings,
        tell: Callable[[str], None] = logger.warning,
    ) -> None:
        self._replicas = replicas
        self._settings = settings
        self._cluster = cluster
        self._keys = Keys(settings)
        self._own = OwnAnswers(settings)
        self._visits: set[Visit] = set()
        self._closing = False
        self._tell = tell
        self.steering = Steering(replicas, RoutingPolicy(page_size=settings.page_size), self._gone)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        watching = asyncio.ensure_future(self.steering.watch_for_ever())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        watching.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    def _gone(self, replica: str, dead: bool) -> None:
        if self._closing:
            return
        if dead:
            self._tell(f"replica {replica} is gone; another one is started")
        elif self._cluster.scales:
            self._tell(f"replica {replica} is gone, or hangs")  # what was scaled away is not started again
        else:
            self._tell(f"replica {replica} is gone, or hangs; another one is started unless it comes back")

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> int:
        """Refuse what comes from now on; returns how many requests are still being answered."""
        self._closing = True
        return len(self._visits)

    def cut(self) -> None:
        """End what is still being answered, in the words of each endpoint."""
        for visit in tuple(self._visits):
            visit.cut()

    # -- one request ------------------------------------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        visit = Visit(receive)
        self._visits.add(visit)
        try:
            if _path(scope) == "/health" and scope["method"] in {"GET", "HEAD"}:
                await self._health(scope, receive, send)
                return
            if self._closing:
                raise shutting_down()
            only, below = _one_replica(_path(scope))
            sent = sent_from(scope, await self._body(scope, receive), below=below)
            async with visit:
                await self.steering.check_there()
                await self._have_answered(visit, sent, only, send)
            if visit.was_cut:
                await visit.end(shutting_down())
        except ApiError as error:
            await self._own.refuse(error, scope, receive, send)
        except NoReplicaError as error:
            await self._own.refuse(_no_replica(error), scope, receive, send)
        except ClientDisconnect:
            logger.debug("a client went in the middle of its request")
        finally:
            self._visits.discard(visit)

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.steering.look()
        healthy, body = cluster_health(list(self.steering.known.values()), self._cluster.least_replicas)
        if self._closing:
            healthy, body = False, {**body, "status": "unavailable", "reason": "shutting down"}

        def made() -> Response:
            return JSONResponse(body, 200 if healthy else 503)

        await self._own.send(made, scope, receive, send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The body of a request whose key is known; of others it is not wanted, since a replica will refuse them.

        Raises:
            ApiError: 408, 413.
            ClientDisconnect: it will not come.
        """
        try:
            self._keys.admit(Request(scope))
        except ApiError:
            return b""
        # Whether it is of a kind that is served is for the replica to say.
        headers = [header for header in scope["headers"] if header[0].lower() == b"content-length"]
        in_time = InTime(receive, self._settings.body_timeout_s)
        return await read_body(Request({**scope, "headers": headers}, in_time), self._settings.max_body)

    async def _have_answered(self, visit: Visit, sent: Sent, only: str | None, send: Send) -> None:
        if only is not None:
            if only not in self.steering.known:
                raise ApiError(404, f"there is no replica {only}", code="no_replica")
            await self._forward(visit, sent, UNREAD, send, only)
            return
        read = await self.steering.read(sent)
        path = sent.path.rstrip("/") or "/"
        if path in {"/", "/ui"} or path.startswith("/ui/"):
            await self._forward(visit, sent, read, send, self.steering.first())
        elif read.kind in {Kind.ALL, Kind.MERGE}:
            await self._from_all(sent, path, send)
        else:
            named = read.kind is Kind.SESSION and path in _TURNS
            await self._forward(visit, _with_turn_id(sent) if named else sent, read, send)

    # -- from one replica -------------------------------------------------------------------------------------------

    async def _forward(self, visit: Visit, sent: Sent, read: ReadRequest, send: Send, only: str | None = None) -> None:
        """
        Raises:
            ApiError, NoReplicaError: nothing was told yet.
            AnswerCutError: something was, of an answer that has no words for its failure.
        """
        avoid: list[str] = []
        while True:
            trip = Trip(self.steering.router, sent, read.key, avoid, only)
            answer = visit.answer = Answer(sent, send)
            try:
                await self._carry(trip, answer, may_leave=only is None and len(avoid) + 1 < ATTEMPTS)
            except ReplicaLostError as lost:
                logger.warning("replica %s was lost under %s %s: %s", lost.replica, sent.method, sent.path, lost)
                if lost.replica is not None:
                    self.steering.lost(lost.replica)
                    avoid.append(lost.replica)
                if answer.begun:
                    await answer.cut(replica_lost())
                elif len(avoid) < ATTEMPTS and lost.replica is not None and only is None:
                    continue
                else:
                    raise replica_lost() from lost
            except AnswerCutError as error:
                if not answer.begun:
                    raise internal_error() from error
                await answer.cut(internal_error())
            return

    async def _carry(self, trip: Trip, answer: Answer, *, may_leave: bool) -> None:
        """
        Args:
            may_leave: whether a replica that hangs may be left for another one, as long as nothing was told.
        """
        batches = self._replicas.ask(trip.call)
        try:
            first = await self._first(trip, batches)
            await self._take(trip, answer, first)
            while may_leave and not answer.begun:
                await self._take(trip, answer, await self._next(trip, batches))
            async for batch in batches:
                await self._take(trip, answer, batch)
        finally:
            await batches.aclose()  # type: ignore[attr-defined]  # an async generator
            trip.over()

    async def _first(self, trip: Trip, batches: AsyncIterator[Sequence[Part]]) -> Sequence[Part]:
        """
        Raises:
            NoReplicaError: none took it in time.
            ReplicaLostError: the one that was to take it hangs.
        """
        try:
            return await asyncio.wait_for(batches.__anext__(), self._cluster.assign_timeout_s)
        except asyncio.TimeoutError:
            if trip.chosen is not None and self.steering.hangs(trip.chosen):
                raise ReplicaLostError("it hangs", trip.chosen) from None
            raise NoReplicaError("no replica had room in time") from None

    async def _next(self, trip: Trip, batches: AsyncIterator[Sequence[Part]]) -> Sequence[Part]:
        """
        Raises:
            ReplicaLostError: the one that has it hangs, and there is another one.
        """
        asking = asyncio.ensure_future(batches.__anext__())
        try:
            while not (await asyncio.wait([asking], timeout=NEWS_S))[0]:
                if trip.replica is not None and self.steering.hangs(trip.replica) and self.steering.known:
                    raise ReplicaLostError("it hangs", trip.replica)
            return asking.result()
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait([asking])

    async def _take(self, trip: Trip, answer: Answer, batch: Sequence[Part]) -> None:
        pieces: list[bytes] = []
        head: Head | None = None
        last = False
        for part in batch:
            if isinstance(part, Taken):
                trip.taken(part.replica)
            elif isinstance(part, Head):
                head = part
            elif isinstance(part, Trailer):
                last = True
                if part.news is not None and trip.replica is not None:
                    await self.steering.learn(trip.replica, part.news)
            else:
                pieces.append(part)
        if head is not None:
            trip.begun()
        if head is not None or pieces or last:
            await answer.tell(head, b"".join(pieces), last=last)

    # -- from all ---------------------------------------------------------------------------------------------------

    async def _from_all(self, sent: Sent, path: str, send: Send) -> None:
        asked = sent._replace(method="GET") if sent.method == "HEAD" else sent
        answers = await self._replicas.ask_all(asked)
        if not answers:
            raise NoReplicaError("no replica answered")
        query = dict(parse_qsl(sent.target.partition(b"?")[2].decode("latin-1")))
        whole: Whole = await asyncio.to_thread(merged, path, query, answers)
        body = b"" if sent.method == "HEAD" else whole.body
        await Answer(sent, send).tell(whole.head, body, last=True)


def _path(scope: Scope) -> str:
    """Decoded, without what the server is mounted at."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path or "/"


def _one_replica(path: str) -> tuple[str | None, str]:
    """The replica that ``/replicas/NAME/…`` is about, and that beginning of the path."""
    if not path.startswith(_ONE_REPLICA):
        return None, ""
    name = path.removeprefix(_ONE_REPLICA).partition("/")[0]
    return (name, f"{_ONE_REPLICA}{name}") if NAME.fullmatch(name) else (None, "")


def _with_turn_id(sent: Sent) -> Sent:
    """The same turn with a name of its own, so that it can be sent again.  A client's own name stands behind it, and wins."""
    body = sent.body.lstrip()
    if not body.startswith(b"{"):
        return sent
    rest = body[1:].lstrip()
    named = b'{"turn_id":"%s"%s' % (f"ingress-{uuid4().hex}".encode(), b"" if rest.startswith(b"}") else b",")
    headers = [header for header in sent.headers if header[0].lower() != b"content-length"]
    whole = named + rest
    return sent._replace(body=whole, headers=[*headers, (b"content-length", str(len(whole)).encode())])


def _no_replica(error: NoReplicaError) -> ApiError:
    return ApiError(503, str(error), code="no_replica", headers={"retry-after": str(_BACK_SOON_S)})
