"""Who gets a request.

Going where most of a prompt is costs waiting behind what is being computed there; going elsewhere costs computing what is
missing.  Both are tokens, so they can be compared::

    cost of a replica = tokens it still has to compute  +  running sequences x what each slows it  +  tokens missing there

    home: whoever holds the longest beginning; among equals the one that the request's affinity falls to (``rendezvous``)
    the cheapest replica gets the request instead of its home only where that saves more than ``floor`` tokens

So a prefix stays where it is while there is no queue, a prefix that everybody wants is computed again on as many replicas as it
takes to serve it, and from then on all of these are homes of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from agentcache.routing.feed import FeedDelta
from agentcache.routing.keys import RoutingKey
from agentcache.routing.loads import Ledger, ReplicaLoad, Ticket
from agentcache.routing.rendezvous import ordered, weight
from agentcache.routing.table import ReplicaTable


@dataclass(frozen=True, slots=True)
class RoutingPolicy:
    """All in tokens.

    Attributes:
        page_size: tokens of a page.
        floor: what must be saved for a request to leave its home.
        running_tokens: what a sequence that generates costs those who wait.
    """

    page_size: int = 16
    floor: int = 1024
    running_tokens: int = 32


@dataclass(frozen=True, slots=True)
class Ranking:
    """Replicas for a request.

    Attributes:
        groups: every replica that may get it once, the best first; those in one group are as good as each other.
        reason: why the first one is: ``sticky`` (it made what the request names), ``prefix`` (it holds most of the prompt),
            ``spread`` (who does is too busy), ``rendezvous`` (nobody holds any), ``load`` (nothing is known of the request),
            ``only`` (there is no other), ``none`` (nobody is there).
        pages: of the prompt that each holds.
        missing: tokens of the prompt that each would have to compute.
    """

    groups: list[list[str]]
    reason: str
    pages: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    chain: tuple[bytes, ...] = ()

    @property
    def first(self) -> str | None:
        return self.groups[0][0] if self.groups else None


class PrefixRouter:
    """Ranks replicas for requests, and keeps count of what it sent where.  Thread-safe.

    Args:
        table: what the replicas hold; the router joins and leaves replicas in it.
    """

    def __init__(
        self,
        table: ReplicaTable | None = None,
        policy: RoutingPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.table = table if table is not None else ReplicaTable(clock=clock)
        self.policy = policy or RoutingPolicy()
        self._ledger = Ledger(clock=clock)
        self._replicas: dict[str, None] = {}
        self._draining: set[str] = set()
        self._dead: set[str] = set()
        self._lock = threading.Lock()

    # -- replicas ---------------------------------------------------------------------------------------------------

    def join(self, replica: str) -> None:
        """It may get requests.  Idempotent; also takes back that it was lost or is draining."""
        with self._lock:
            self._dead.discard(replica)
            self._draining.discard(replica)
            self._replicas[replica] = None
            self._ledger.join(replica)
        self.table.join(replica)

    def drain(self, replica: str) -> None:
        """Only what must go to it still does."""
        with self._lock:
            self._draining.add(replica)

    def leave(self, replica: str) -> None:
        """It is gone.  Idempotent."""
        with self._lock:
            self._replicas.pop(replica, None)
            self._draining.discard(replica)
            self._ledger.leave(replica)
        self.table.leave(replica)

    def lost(self, replica: str) -> None:
        """It was just found dead: it gets nothing, even if somebody still lists it, until it joins again."""
        self.leave(replica)
        with self._lock:
            self._dead.add(replica)

    def sync(self, replicas: Collection[str]) -> None:
        """Join and leave until exactly ``replicas`` are there, but for those that were found dead."""
        with self._lock:
            self._dead.intersection_update(replicas)
            known, dead = set(self._replicas), set(self._dead)
        for replica in known.difference(replicas):
            self.leave(replica)
        for replica in replicas:
            if replica not in known and replica not in dead:
                self.join(replica)

    def replicas(self) -> list[str]:
        with self._lock:
            return list(self._replicas)

    # -- what they say ----------------------------------------------------------------------------------------------

    def apply(self, replica: str, delta: FeedDelta) -> bool:
        """Learn a replica's answer: its pages and its load.  See ``ReplicaTable.apply``."""
        if delta.load is not None:
            self.report(replica, delta.load)
        return self.table.apply(replica, delta)

    def report(self, replica: str, load: ReplicaLoad) -> None:
        with self._lock:
            self._ledger.report(replica, load)

    def load(self, replica: str) -> ReplicaLoad:
        with self._lock:
            return self._ledger.load(replica)

    # -- requests ---------------------------------------------------------------------------------------------------

    def rank(self, key: RoutingKey, among: Collection[str] | None = None) -> Ranking:
        """Where a request should go.

        Args:
            among: those that are there, as far as the caller knows; without it, all that joined.
        """
        with self._lock:
            names = [name for name in self._replicas if among is None or name in among]
            usable = [name for name in names if name not in self._draining or name == key.sticky] or names
            loads = {name: self._ledger.load(name) for name in usable}
        held = self.table.held(key.chain)
        size = self.policy.page_size
        pages = {name: held.get(name, 0) for name in usable}
        missing = {name: max(0, key.tokens - pages[name] * size) for name in usable}
        if len(usable) < 2:
            return Ranking([usable] if usable else [], "only" if usable else "none", pages, missing, key.chain)
        costs = {name: self._waiting(loads[name]) + missing[name] for name in usable}
        order, reason = self._order(key, pages, costs)
        groups = [[order[0]], [order[1]], order[2:]]
        return Ranking([group for group in groups if group], reason, pages, missing, key.chain)

    def _waiting(self, load: ReplicaLoad) -> int:
        return load.tokens + load.running * self.policy.running_tokens

    def _order(self, key: RoutingKey, pages: dict[str, int], costs: dict[str, int]) -> tuple[list[str], str]:
        thing = key.affinity or (key.chain[0] if key.chain else b"")
        if not thing and key.sticky is None:
            return sorted(costs, key=lambda name: (costs[name], weight(b"", name))), "load"
        turn = {name: place for place, name in enumerate(ordered(thing, costs))}
        by_cost = sorted(costs, key=lambda name: (costs[name], turn[name]))
        if key.sticky in costs:
            home, reason = key.sticky, "sticky"
        else:
            home = min(costs, key=lambda name: (-pages[name], turn[name]))
            reason = "prefix" if pages[home] else "rendezvous"
            if costs[home] - costs[by_cost[0]] > self.policy.floor:
                home, reason = by_cost[0], "spread"
        return [home, *(name for name in by_cost if name != home)], reason

    def routed(self, ranking: Ranking, replica: str) -> Ticket:
        """The request went to ``replica``.  Whoever calls this calls ``ended`` once, however the request ends."""
        self.table.expect(replica, ranking.chain)
        with self._lock:
            return self._ledger.routed(replica, ranking.missing.get(replica, 0), ranking.chain)

    def started(self, ticket: Ticket) -> None:
        """Its first token came, or its answer's head."""
        with self._lock:
            self._ledger.started(ticket)

    def ended(self, ticket: Ticket, computed: bool = True) -> None:
        """It is over.  Idempotent.

        Args:
            computed: its prompt was; if not, its pages are not expected there any more.
        """
        with self._lock:
            self._ledger.ended(ticket)
        if not computed:
            self.table.forget(ticket.replica, ticket.chain)
