"""Where requests go: one ingress's knowledge of the replicas, kept fresh, and each request's way to one of them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from agentcache.ray.exchange import Sent
from agentcache.ray.parts import Call, Groups, News, NoReplicaError
from agentcache.routing.feed import KEY_BYTES, FeedDelta
from agentcache.routing.keys import RoutingKey
from agentcache.routing.loads import Ticket
from agentcache.routing.requests import Kind, ReadRequest, RequestReader
from agentcache.routing.router import PrefixRouter, Ranking, RoutingPolicy

if TYPE_CHECKING:
    from agentcache.ray.replicas import Replicas

logger = logging.getLogger(__name__)

NEWS_S = 1.0
"""How often replicas are asked what came and went; answers tell it as well."""
LEARN_S = 5.0
"""How long the first requests may wait until requests can be read."""
AT_ONCE = 4096
"""Changes that are learned on the event loop; more of them take a thread."""

UNREAD = ReadRequest(Kind.ANY, RoutingKey())


class Steering:
    """Used on the ingress's event loop.

    Attributes:
        router: ranks replicas.
        known: what each replica that answered lately said of itself.

    Args:
        gone: is told of each replica that was known and is no more, and whether it is certain that it died.
    """

    def __init__(
        self, replicas: Replicas, policy: RoutingPolicy, gone: Callable[[str, bool], None] | None = None
    ) -> None:
        self.router = PrefixRouter(policy=policy)
        self.known: dict[str, News] = {}
        self._replicas = replicas
        self._gone = gone
        self._reader: RequestReader | None = None
        self._looking: asyncio.Task[None] | None = None
        self._dead: set[str] = set()
        """Found dead since the last look began, which may have heard of them before."""
        self._learning: asyncio.Task[None] | None = None

    async def watch_for_ever(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:
                logger.exception("the replicas could not be asked for news")
            await asyncio.sleep(NEWS_S)

    async def look(self) -> None:
        """Ask all replicas for news, once for everybody who wants to know at this moment."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        self._dead.clear()
        cursors = {name: cursor for name in self.known if (cursor := self.router.table.cursor(name)) is not None}
        heard = await self._replicas.news(cursors)
        told = {news.replica: news for news in heard if news.replica not in self._dead}
        for name in self.known.keys() - told.keys():
            self._forget(name, dead=False)  # Ray may list for a long time whoever hangs
        self.known = told
        for name, news in tuple(told.items()):
            if name in self._dead:
                continue
            self.router.join(name)  # also one that drained, and is healthy again
            if not news.healthy:
                self.router.drain(name)
            await self.learn(name, news.delta)
        if told and self._reader is None and (self._learning is None or self._learning.done()):
            self._learning = asyncio.ensure_future(self._learn_to_read())
        if any(news.delta.more for news in told.values()):
            asyncio.get_running_loop().call_soon(asyncio.ensure_future, self._again())

    async def _again(self) -> None:
        """There is more to be told at once."""
        if self._looking is not None:
            await asyncio.wait([self._looking])
        await self.look()

    async def learn(self, replica: str, delta: FeedDelta) -> None:
        if len(delta.added) + len(delta.removed) > AT_ONCE * KEY_BYTES:
            await asyncio.to_thread(self.router.apply, replica, delta)
        else:
            self.router.apply(replica, delta)

    async def _learn_to_read(self) -> None:
        """From the first replica that there is."""
        try:
            profile = await self._replicas.profile()
            self._reader = await asyncio.to_thread(RequestReader, profile)
        except Exception:
            logger.exception("requests cannot be read, and go to whoever has least to do")

    async def read(self, sent: Sent) -> ReadRequest:
        """What ``sent`` is routed by; of bodies, off the event loop."""
        if self._reader is None and self._learning is not None:
            await asyncio.wait([self._learning], timeout=LEARN_S)
        reader = self._reader
        if reader is None:
            return UNREAD
        if sent.body:
            return await asyncio.to_thread(reader.read, sent.method, sent.path, sent.headers, sent.body)
        return reader.read(sent.method, sent.path, sent.headers)

    async def check_there(self) -> None:
        """
        Raises:
            NoReplicaError: no replica is there.
        """
        if not self.known:
            await self.look()
        if not self.known:
            raise NoReplicaError("no replica is there")

    def hangs(self, replica: str) -> bool:
        """Whether it was sent a request, and says nothing of itself either."""
        return replica not in self.known

    def first(self) -> str | None:
        """The replica that shows itself where only one can be shown: the same for as long as it lives."""
        return min(self.known, default=None)

    def lost(self, replica: str) -> None:
        """It was just found dead."""
        self._dead.add(replica)
        self._forget(replica, dead=True)

    def _forget(self, replica: str, *, dead: bool) -> None:
        if self.known.pop(replica, None) is not None and self._gone is not None:
            self._gone(replica, dead)
        self.router.lost(replica)


class Trip:
    """One attempt to have a request answered.  ``choose`` is called on the router's thread, all else on the ingress's event loop.

    Args:
        avoid: replicas that it was lost on before.
        only: the one replica that may answer it.
    """

    def __init__(
        self,
        router: PrefixRouter,
        sent: Sent,
        key: RoutingKey,
        avoid: Collection[str] = (),
        only: str | None = None,
    ) -> None:
        self.call = Call(sent, self.choose)
        self.replica: str | None = None
        self._router = router
        self._key = key
        self._avoid = avoid
        self._only = only
        self._ranking: Ranking | None = None
        self._ticket: Ticket | None = None
        self._begun = False
        self._over = False
        self._lock = threading.Lock()
        """Held where tickets are taken and given back."""

    def choose(self, there: Collection[str]) -> Groups:
        """
        Raises:
            NoReplicaError: none of those that are there will do, or nobody waits for it any more.
        """
        if self._only is not None:
            if self._only not in there:
                raise NoReplicaError(f"there is no replica {self._only}")
            return [[self._only]]
        self._router.sync(there)
        ranking = self._router.rank(self._key, [name for name in there if name not in self._avoid] or there)
        if ranking.first is None:
            raise NoReplicaError("no replica is there")
        with self._lock:
            if self._over:  # the router hears of it later than we do
                raise NoReplicaError("nobody waits for the answer any more")
            self._settle(computed=False)
            self._ranking, self._ticket = ranking, self._router.routed(ranking, ranking.first)
        likely = [name for group in ranking.groups[:2] for name in group]
        cursors = ((name, self._router.table.cursor(name)) for name in likely)
        self.call.cursors = {name: cursor for name, cursor in cursors if cursor is not None}
        return ranking.groups

    def taken(self, replica: str) -> None:
        """``replica`` has it."""
        self.replica = replica
        with self._lock:
            if self._ranking is not None and self._ticket is not None and self._ticket.replica != replica:
                self._settle(computed=False)
                self._ticket = self._router.routed(self._ranking, replica)

    @property
    def chosen(self) -> str | None:
        """Where it went, or waits to go."""
        return None if self._ticket is None else self._ticket.replica

    def begun(self) -> None:
        """The first of the answer came: its prompt is computed."""
        if self._ticket is not None and not self._begun:
            self._begun = True
            self._router.started(self._ticket)

    def over(self) -> None:
        with self._lock:
            self._over = True
            self._settle(computed=self._begun)

    def _settle(self, *, computed: bool) -> None:
        if self._ticket is not None:
            self._router.ended(self._ticket, computed)
            self._ticket = None
