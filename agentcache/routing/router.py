"""Who gets a request.

Going where most of a prompt is costs waiting behind what is being computed there; going elsewhere costs computing what is
missing, and room for it.  All of it is tokens, so it can be compared::

    cost of a replica = tokens it still has to compute  +  running sequences x what each slows it  +  tokens missing there
                        +  a share of how much more came to its cache of late than to others'

    home: whoever holds the longest beginning; among equals who had the conversation last, then ``rendezvous``
    the cheapest replica gets the request instead of its home only where that saves more than ``floor``

So a prefix stays where it is while there is no queue, a prefix that everybody wants is computed again on as many replicas as it
takes to serve it, and from then on all of these are homes of it.  The last term does for N memories what one order of eviction
does for one: pages that are evicted are about equally old everywhere.  It moves who begins; who goes on stays with its pages.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from agentcache.routing.feed import FeedDelta
from agentcache.routing.keys import RoutingKey
from agentcache.routing.loads import Ledger, ReplicaLoad, Ticket
from agentcache.routing.rendezvous import ordered, weight
from agentcache.routing.table import ReplicaTable


@dataclass(frozen=True, slots=True)
class RoutingPolicy:
    """What is weighed against what; tokens unless it says otherwise.

    Attributes:
        page_size: tokens of a page.
        floor: what must be saved at least for a request to leave its home.
        floor_share: and as much of its prompt.
        running_tokens: what a sequence that generates costs those who come: about what it still has to draw.
        newcomer_churn: of a conversation that begins, how much of a replica's churn counts as cost.
        churn: the same for one that goes on.
        churn_s: seconds after which what came to a cache counts half.
        threads: conversations of which is remembered where they were last; some 200 bytes each.
    """

    page_size: int = 16
    floor: int = 256
    floor_share: float = 0.5
    running_tokens: int = 128
    newcomer_churn: float = 0.5
    churn: float = 0.1
    churn_s: float = 60.0
    threads: int = 65_536


@dataclass(frozen=True, slots=True)
class Ranking:
    """Replicas for a request.

    Attributes:
        groups: every replica that may get it once, the best first; those in one group are as good as each other.
        reason: why the first one is: ``sticky`` (it made what the request names), ``prefix`` (it holds most of the prompt),
            ``spread`` (who does is too busy), ``rendezvous`` (nobody holds any), ``load`` (nothing is known of the request),
            ``only`` (there is no other), ``none`` (nobody is there).
        key: of the request.
        pages: of its prompt that each is believed to hold.
    """

    groups: list[list[str]]
    reason: str
    key: RoutingKey
    pages: dict[str, int] = field(default_factory=dict)

    @property
    def first(self) -> str | None:
        return self.groups[0][0] if self.groups else None


class _Thread(NamedTuple):
    """Where a conversation was last, and how long its prompt was then."""

    replica: str
    tokens: int


class _Memory:
    """What the router knows of a replica beside its pages and its load: how much came to its cache of late."""

    __slots__ = ("at", "seen", "tokens")

    def __init__(self, now: float) -> None:
        self.tokens = 0.0
        self.at = now
        self.seen = 0

    def churn(self, now: float, half_s: float) -> float:
        return float(self.tokens * 0.5 ** ((now - self.at) / half_s))

    def note(self, seen: int, tokens: int, now: float, half_s: float) -> None:
        """``tokens`` came since ``seen`` was told last."""
        self.tokens, self.at, self.seen = self.churn(now, half_s) + tokens, now, seen


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
        self._replicas: dict[str, _Memory] = {}
        self._draining: set[str] = set()
        self._dead: set[str] = set()
        self._threads: OrderedDict[bytes, _Thread] = OrderedDict()
        self._clock = clock
        self._lock = threading.Lock()

    # -- replicas ---------------------------------------------------------------------------------------------------

    def join(self, replica: str) -> None:
        """It may get requests.  Idempotent; also takes back that it was lost or is draining."""
        with self._lock:
            self._dead.discard(replica)
            self._draining.discard(replica)
            self._replicas.setdefault(replica, _Memory(self._clock()))
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
        learned = self.table.apply(replica, delta)
        arrivals, policy = self.table.arrivals(replica), self.policy
        with self._lock:
            memory = self._replicas.get(replica)
            if memory is not None and arrivals > memory.seen:
                tokens = (arrivals - memory.seen) * policy.page_size
                memory.note(arrivals, tokens, self._clock(), policy.churn_s)
        return learned

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
        there = None if among is None else set(among)
        with self._lock:
            names = [name for name in self._replicas if there is None or name in there]
            usable = [name for name in names if name not in self._draining or name == key.sticky] or names
            waiting = {name: self._waiting(self._ledger.load(name)) for name in usable}
            thread = self._threads.get(key.thread) if key.thread else None
            pressure = self._pressure(usable, begins=thread is None and not key.certain)
        pages = self._pages(key, usable, thread)
        if len(usable) < 2:
            return Ranking([usable] if usable else [], "only" if usable else "none", key, pages)
        costs = {name: waiting[name] + self._missing(key, pages[name]) + pressure[name] for name in usable}
        order, reason = self._order(key, pages, costs, None if thread is None else thread.replica)
        groups = [[order[0]], [order[1]], order[2:]]
        return Ranking([group for group in groups if group], reason, key, pages)

    def home(self, key: RoutingKey) -> str | None:
        """Whom a request that nobody has pages of belongs to while nobody is busy; ``None`` where nobody is there."""
        with self._lock:
            names = [name for name in self._replicas if name not in self._draining] or list(self._replicas)
        return ordered(_thing(key), names)[0] if names else None

    def _waiting(self, load: ReplicaLoad) -> int:
        return load.tokens + load.running * self.policy.running_tokens

    def _pressure(self, replicas: Collection[str], *, begins: bool) -> dict[str, int]:
        """What it costs that room is wanted in the cache of each.

        A conversation that begins is drawn to the quietest cache, such as that of a replica that just joined; one that goes on is
        pushed away only by those where more is wanted than on average.
        """
        now, policy = self._clock(), self.policy
        churn = {name: self._replicas[name].churn(now, policy.churn_s) for name in replicas}
        usual = (min if begins else fmean)(churn.values()) if churn else 0.0
        share = policy.newcomer_churn if begins else policy.churn
        return {name: int(share * max(0.0, tokens - usual)) for name, tokens in churn.items()}

    def _missing(self, key: RoutingKey, pages: int) -> int:
        return max(0, key.tokens - pages * self.policy.page_size)

    def _pages(self, key: RoutingKey, replicas: Collection[str], thread: _Thread | None) -> dict[str, int]:
        """Pages of ``key`` that each replica is believed to hold.

        The chain behind the first reply may be a wrong guess.  Who had the conversation last, or holds exactly what is certain
        of it, is believed to hold what it was sent then; if it does not, its pages were evicted, and nobody else has them.
        """
        held = self.table.held(key.chain)
        pages = {name: held.get(name, 0) for name in replicas}
        most = max(pages.values(), default=0)
        if thread is not None and most and pages.get(thread.replica) == most:
            pages[thread.replica] = max(most, min(len(key.chain), thread.tokens // self.policy.page_size))
        elif key.certain and abs(most - key.certain) <= 1:
            pages.update((name, len(key.chain)) for name, reach in pages.items() if reach == most)
        return pages

    def _order(
        self, key: RoutingKey, pages: dict[str, int], costs: dict[str, int], last: str | None
    ) -> tuple[list[str], str]:
        thing = _thing(key)
        if not thing and key.sticky is None:
            return sorted(costs, key=lambda name: (costs[name], weight(b"", name))), "load"
        turn = {name: place for place, name in enumerate(ordered(thing, costs))}
        by_cost = sorted(costs, key=lambda name: (costs[name], turn[name]))
        if key.sticky in costs:
            home, reason = key.sticky, "sticky"
        else:
            home = min(costs, key=lambda name: (-pages[name], name != last, turn[name]))
            reason = "prefix" if pages[home] else "rendezvous"
            floor = max(self.policy.floor, self.policy.floor_share * key.tokens)
            if costs[home] - costs[by_cost[0]] > floor:
                home, reason = by_cost[0], "spread"
        return [home, *(name for name in by_cost if name != home)], reason

    def routed(self, ranking: Ranking, replica: str) -> Ticket:
        """The request went to ``replica``.  Whoever calls this calls ``ended`` once, however the request ends."""
        key = ranking.key
        self.table.expect(replica, key.chain)
        with self._lock:
            if key.thread:
                self._threads[key.thread] = _Thread(replica, key.tokens)
                self._threads.move_to_end(key.thread)
                if len(self._threads) > self.policy.threads:
                    self._threads.popitem(last=False)
            return self._ledger.routed(replica, self._missing(key, ranking.pages.get(replica, 0)), key.chain)

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


def _thing(key: RoutingKey) -> bytes:
    """What decides between replicas that are equal; empty where nothing is known of a request."""
    return key.affinity or key.thread or (key.chain[0] if key.chain else b"")
