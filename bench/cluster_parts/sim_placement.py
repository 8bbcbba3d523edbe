"""Ways to choose a replica: the real router, and those that it is compared with."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Protocol

from agentcache.routing.keys import RoutingKey
from agentcache.routing.loads import Ticket
from agentcache.routing.rendezvous import ordered
from agentcache.routing.router import PrefixRouter, RoutingPolicy
from bench.cluster_parts.sim_replica import SimReplica
from bench.cluster_parts.sim_traffic import Agent

_POLL_S = 1.0


class Placement(Protocol):
    """Where turns go."""

    def join(self, replica: SimReplica) -> None: ...

    def leave(self, replica: SimReplica, *, dead: bool) -> None: ...

    def place(self, agent: Agent) -> tuple[str, Token]:
        """A replica, and what to tell the placement about the turn later."""
        ...


class Token(Protocol):
    """One turn that was placed."""

    def started(self) -> None: ...

    def ended(self, served: bool) -> None: ...


class _Quiet:
    def started(self) -> None:
        """Nobody counts."""

    def ended(self, served: bool) -> None:
        """Nobody counts."""


class Simple:
    """A rule that knows the names of the replicas, and nothing else.

    Args:
        choose: of an agent and the names.
    """

    def __init__(self, choose: Callable[[Agent, list[str]], str]) -> None:
        self._names: list[str] = []
        self._choose = choose

    def join(self, replica: SimReplica) -> None:
        self._names.append(replica.name)

    def leave(self, replica: SimReplica, *, dead: bool) -> None:
        self._names.remove(replica.name)

    def place(self, agent: Agent) -> tuple[str, Token]:
        return self._choose(agent, self._names), _Quiet()


def round_robin() -> Simple:
    turn = itertools.count()
    return Simple(lambda agent, names: names[next(turn) % len(names)])


def at_random(seed: int) -> Simple:
    rng = random.Random(f"{seed} placement")
    return Simple(lambda agent, names: rng.choice(names))


def by_session() -> Simple:
    """Rendezvous of the session's name: what a gateway with sticky sessions does at its best."""
    return Simple(lambda agent, names: ordered(agent.name.encode(), names)[0])


class _Sent:
    def __init__(self, ingress: Ingress, replica: str, ticket: Ticket) -> None:
        self._ingress, self._replica, self._ticket = ingress, replica, ticket

    def started(self) -> None:
        self._ingress.router.started(self._ticket)

    def ended(self, served: bool) -> None:
        self._ingress.router.ended(self._ticket, computed=served)
        if served:
            self._ingress.hear(self._replica)


class Ingress:
    """One process that routes: the real router, fed by answers and by asking each replica once a second."""

    def __init__(self, policy: RoutingPolicy, now: Callable[[], float]) -> None:
        self.router = PrefixRouter(policy=policy, clock=now)
        self._now = now
        self._replicas: dict[str, SimReplica] = {}
        self._asked: dict[str, float] = {}

    def join(self, replica: SimReplica) -> None:
        self._replicas[replica.name] = replica
        self._asked[replica.name] = float("-inf")
        self.router.join(replica.name)

    def leave(self, replica: SimReplica, *, dead: bool) -> None:
        del self._replicas[replica.name]
        (self.router.lost if dead else self.router.leave)(replica.name)

    def poll(self) -> None:
        """Ask those who were not asked for a second."""
        now = self._now()
        for name, replica in self._replicas.items():
            if now - self._asked[name] >= _POLL_S:
                self._asked[name] = now
                self._read(replica)

    def _read(self, replica: SimReplica) -> None:
        load = replica.load()
        while True:
            delta = replica.feed.since(self.router.table.cursor(replica.name), load=load)
            self.router.apply(replica.name, delta)
            if not delta.more:
                return

    def hear(self, name: str) -> None:
        """An answer came, and with it what is new."""
        replica = self._replicas.get(name)
        if replica is not None:
            delta = replica.feed.recent(self.router.table.cursor(name), load=replica.load())
            if delta is not None:
                self.router.apply(name, delta)


class Routed:
    """The real router in several ingresses, each of which knows of its own requests only.

    Args:
        drift: whether replies have other tokens than their text has, so that an ingress knows the chain of the first prompt
            only.
    """

    def __init__(
        self,
        now: Callable[[], float],
        page_size: int,
        ingresses: int = 2,
        *,
        drift: bool = False,
    ) -> None:
        policy = RoutingPolicy(page_size=page_size)
        self.ingresses = [Ingress(policy, now) for _ in range(ingresses)]
        self._drift = drift
        self._rng = random.Random("ingresses")

    def join(self, replica: SimReplica) -> None:
        for ingress in self.ingresses:
            ingress.join(replica)

    def leave(self, replica: SimReplica, *, dead: bool) -> None:
        for ingress in self.ingresses:
            ingress.leave(replica, dead=dead)

    def key(self, agent: Agent) -> RoutingKey:
        tokens = agent.tokens
        chain = tuple(tokens.keys(tokens.num_full_pages)[: tokens.num_full_pages])
        certain = agent.first_pages if agent.steps > 1 else 0
        if self._drift and agent.first_pages < len(chain):
            own = (self._rng.randbytes(16) for _ in chain[agent.first_pages :])
            chain = (*chain[: agent.first_pages], *own)
        return RoutingKey(chain, len(tokens), thread=agent.name.encode(), certain=certain)

    def place(self, agent: Agent) -> tuple[str, Token]:
        ingress = self._rng.choice(self.ingresses)
        ingress.poll()
        ranking = ingress.router.rank(self.key(agent))
        assert ranking.first is not None, "nobody is there"
        return ranking.first, _Sent(ingress, ranking.first, ingress.router.routed(ranking, ranking.first))
